"""What the public interface promises holds on the second adapter too: the same tests, with other fixtures."""

from __future__ import annotations

from tests.conformance import test_basics, test_looking, test_requests, test_waiting

TestALease = test_basics.TestALease
TestABlock = test_basics.TestABlock
TestTheBudget = test_waiting.TestTheBudget
TestTheQueue = test_waiting.TestTheQueue
TestBreaking = test_looking.TestBreaking
TestRequests = test_requests.TestRequests
TestAServerThatForgetsScripts = test_requests.TestAServerThatForgetsScripts
