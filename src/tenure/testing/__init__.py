"""For tests of programs that use tenure: bring about what seldom happens. Nothing here acts unless it is called.

The pytest fixtures are in `tenure.testing.plugin`, which pytest loads by itself.
"""

from .clock import jump
from .losing import LostReply, lose, lose_next_reply

__all__ = ["LostReply", "jump", "lose", "lose_next_reply"]
