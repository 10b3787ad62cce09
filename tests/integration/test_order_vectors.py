#!/usr/bin/python3
"""The vectors and the examples of docs/order.md are what the second implementation gives today."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

if __name__ == "__main__":
    script = os.path.join(ROOT, "tests/unit/plan/order_vectors.py")
    sys.exit(subprocess.run([sys.executable, script], cwd=ROOT).returncode)
