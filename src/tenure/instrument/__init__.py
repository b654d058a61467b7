"""Where events go; each target is imported on demand."""
