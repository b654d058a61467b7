"""Bridges to other libraries; each is imported on demand, and needs the library that it bridges to."""
