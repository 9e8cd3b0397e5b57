"""What the peers share: timing as in bench/measure.h, and records as in bench/record.h."""

import datetime
import json
import statistics
import subprocess
import sys

import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
}


class Timer:
    """Times works on the GPU that take turns, the L2 cache washed before each run."""

    def __init__(self, runs=20, warm_up=2):
        self.runs = runs
        self.warm_up = warm_up
        l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self._wash = torch.empty(4 * l2, dtype=torch.uint8, device="cuda")

    def interleave(self, works, runs=None):
        """For each work the seconds of its runs, sorted."""
        for _ in range(self.warm_up):
            for work in works:
                work()
        events = [[] for _ in works]
        for _ in range(runs or self.runs):
            for i, work in enumerate(works):
                pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self._wash.zero_()
                pair[0].record()
                work()
                pair[1].record()
                events[i].append(pair)
        torch.cuda.synchronize()
        return [sorted(1e-3 * a.elapsed_time(b) for a, b in of_one) for of_one in events]

    def median(self, work, runs=None):
        return statistics.median(self.interleave([work], runs)[0])


def describe_machine(commit):
    properties = torch.cuda.get_device_properties(0)
    machine = {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "capability": properties.major * 10 + properties.minor,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "commit": commit,
        "date": datetime.date.today().isoformat(),
    }
    try:
        import triton

        machine["triton"] = triton.__version__
    except ImportError:
        pass
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        machine["driver"] = subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        pass
    return machine


class Record:
    """Figures of peers, written in the form of the library's own records."""

    def __init__(self, benchmark, dtype, commit="unknown"):
        self.document = {
            "benchmark": benchmark,
            "machine": describe_machine(commit),
            "command": " ".join(sys.argv),
            "dtype": dtype,
            "figures": [],
        }

    def add(self, cell, what, by, seconds, flops=0.0, bytes=0.0, **further):
        """`seconds` as interleave() gives them."""
        n = len(seconds)
        self.document["figures"].append(
            {
                "cell": cell,
                "what": what,
                "by": by,
                "seconds": seconds[n // 2],
                "low": seconds[n // 4],
                "high": seconds[n * 3 // 4],
                "runs": n,
                "flops": flops,
                "bytes": bytes,
                **further,
            }
        )

    def add_failure(self, cell, what, by, error):
        self.document["figures"].append(
            {
                "cell": cell,
                "what": what,
                "by": by,
                "error": f"{type(error).__name__}: {str(error)[:200]}",
            }
        )

    def write(self, path):
        with open(path, "w") as file:
            json.dump(self.document, file, separators=(",", ":"))
            file.write("\n")
