"""The chart's tests run real Helm and kubeconform; charts/tools says where from."""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "charts" / "tools"))
