"""The resource's side of the fence: whoever keeps the data remembers the highest fence, and refuses a lower one.

Here are a guard for something in this process, tables through any DB-API driver, and keys on Redis or Valkey;
`tenure.fencing.sqlalchemy` has tables and mapped classes of SQLAlchemy. All of them take a lease, or its fence as a
number, raise `StaleFence` without having changed anything, and compare on the read too.
"""

from .dbapi import FencedTable
from .fence import Fence, fence_of
from .guard import FenceGuard
from .redis import AsyncFencedKeys, FencedKeys

__all__ = ["AsyncFencedKeys", "Fence", "FenceGuard", "FencedKeys", "FencedTable", "fence_of"]
