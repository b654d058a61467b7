"""The protocol itself: pure procedures, with no I/O, no clock, no threads and no client library.

Everything here is written against the small `ports.Port`; `async def` in this package is not asyncio.
"""
