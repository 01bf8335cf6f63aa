"""Keeps the GPU busy for a share of each period and prints when and for how long.

Arguments: duty (0 to 1), period and length in seconds. Each line: Unix time of the start, seconds.
"""
import sys
import time

import torch

duty, period, length = map(float, sys.argv[1:4])
a = torch.randn(2048, 2048, device="cuda")
b = torch.empty_like(a)
torch.mm(a, a, out=b)
torch.cuda.synchronize()
first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
begin = following = time.monotonic()
while time.monotonic() - begin < length:
    at, until = time.time(), time.monotonic() + duty * period
    first.record()
    while time.monotonic() < until:
        for _ in range(4):  # several at once, so that the GPU does not wait for the host
            torch.mm(a, a, out=b)
        torch.cuda.synchronize()
    last.record()
    last.synchronize()
    print("%.6f %.6f" % (at, first.elapsed_time(last) / 1e3), flush=True)
    following += period
    time.sleep(max(0.0, following - time.monotonic()))
