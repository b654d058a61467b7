"""Applications out of real parts: `python -m examples.forum`, and so on; each ends with a checked result."""
