"""What the peers share: timing as in bench/measure.h, and records as in bench/record.h."""

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import time

import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
}


def parse_arguments(description, bench, options=None):
    """Arguments of a peer that measures what a record of `bench` has, and those of `options` by
    name, with their defaults. Sets torch up by them."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", required=True, help=f"JSON of {bench}")
    parser.add_argument("--dtype", help="ignored: the record says it of each cell")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: what torch takes")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", help="writes the figures")
    parser.add_argument("--commit", default="unknown")
    for name, default in (options or {}).items():
        parser.add_argument(name, type=type(default), default=default)
    arguments = parser.parse_args()
    arguments.device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    return arguments


def read_figures(path):
    """A record's dtype, and for each cell of it our own figures by name."""
    with open(path) as file:
        record = json.load(file)
    cells = {}
    for figure in record["figures"]:
        if figure["by"] == "bs":
            cells.setdefault(json.dumps(figure["cell"]), {})[figure["what"]] = figure
    return record["dtype"], [(json.loads(cell), figures) for cell, figures in cells.items()]


class Timer:
    """Times works that take turns; on a GPU the L2 cache is washed before each run."""

    def __init__(self, runs=20, warm_up=2, device="cuda"):
        self.runs = runs
        self.warm_up = warm_up
        self._wash = None
        if device == "cuda":
            l2 = torch.cuda.get_device_properties(0).L2_cache_size
            self._wash = torch.empty(4 * l2, dtype=torch.uint8, device="cuda")

    def interleave(self, works, runs=None):
        """For each work the seconds of its runs, sorted."""
        for _ in range(self.warm_up):
            for work in works:
                work()
        if self._wash is None:
            return self._interleave_on_cpu(works, runs or self.runs)
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

    @staticmethod
    def _interleave_on_cpu(works, runs):
        seconds = [[] for _ in works]
        for _ in range(runs):
            for i, work in enumerate(works):
                start = time.perf_counter()
                work()
                seconds[i].append(time.perf_counter() - start)
        return [sorted(of_one) for of_one in seconds]

    def median(self, work, runs=None):
        return statistics.median(self.interleave([work], runs)[0])


def describe_gpu():
    properties = torch.cuda.get_device_properties(0)
    gpu = {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "capability": properties.major * 10 + properties.minor,
        "cuda": torch.version.cuda,
    }
    try:
        import triton

        gpu["triton"] = triton.__version__
    except ImportError:
        pass
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        gpu["driver"] = subprocess.run(
            query, capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        pass
    return gpu


def describe_machine(commit, device):
    machine = describe_gpu() if device == "cuda" else {"threads": torch.get_num_threads()}
    if device == "cuda" and torch.backends.cudnn.is_available():
        machine["cudnn"] = torch.backends.cudnn.version()
    today = datetime.date.today().isoformat()
    return {**machine, "torch": torch.__version__, "commit": commit, "date": today}


class Record:
    """Figures of peers, written in the form of the library's own records."""

    def __init__(self, benchmark, dtype, commit="unknown", device="cuda"):
        self.document = {
            "benchmark": benchmark,
            "machine": describe_machine(commit, device),
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
