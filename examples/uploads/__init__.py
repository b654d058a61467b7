"""Resumable uploads on several servers behind a load balancer: `python -m examples.uploads`."""
