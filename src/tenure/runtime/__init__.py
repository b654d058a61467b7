"""Where procedures run: on the caller's thread, in an event loop, in the hub."""
