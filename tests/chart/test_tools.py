"""Where the programs come from, and what is said when one is missing."""

from __future__ import annotations

import os
import pathlib
import subprocess

import chartlib
import pytest
from chartlib import ROOT, InvalidError

TOOL = ROOT / "charts" / "tools" / "tool"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: x }\nspec: { replica: 1 }\n"


def ask(name: str, path: pathlib.Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing but a shell's own programs and what is in `path`."""
    shell = path / "shell"
    shell.mkdir()
    for program in ("sh", "dirname", "sed", "tr", "mkdir", "mv"):
        (shell / program).symlink_to(
            next(p for p in ("/usr/bin", "/bin") if os.path.exists(f"{p}/{program}")) + f"/{program}"
        )
    environment = {"PATH": f"{path}:{shell}", "CHART_TOOLS_CACHE": str(path / "cache"), **more}
    return subprocess.run(["/bin/sh", str(TOOL), name], env=environment, capture_output=True, text=True, check=False)


def program(path: pathlib.Path, text: str) -> pathlib.Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("name", ["helm", "helm3", "helm-unittest", "kubeconform"])
def test_a_missing_program_is_asked_for_by_name_and_version(name: str, tmp_path: pathlib.Path) -> None:
    answer = ask(name, tmp_path)
    assert answer.returncode == 1
    assert f"{name} " in answer.stderr
    assert "Install " in answer.stderr
    assert " v" in answer.stderr
    assert "or Go 1." in answer.stderr


def test_a_program_on_the_path_is_used(tmp_path: pathlib.Path) -> None:
    helm = program(tmp_path / "helm", "echo v4.9.9+gabc")
    assert ask("helm", tmp_path).stdout.strip() == str(helm)


def test_a_helm_of_the_other_major_version_is_not(tmp_path: pathlib.Path) -> None:
    program(tmp_path / "helm", "echo v3.18.0")
    assert ask("helm", tmp_path).returncode == 1


def test_a_helm_3_may_be_called_helm(tmp_path: pathlib.Path) -> None:
    helm = program(tmp_path / "helm", "echo v3.18.0")
    assert ask("helm3", tmp_path).stdout.strip() == str(helm)


def test_the_variable_wins_and_must_fit(tmp_path: pathlib.Path) -> None:
    other = program(tmp_path / "other", "echo v4.0.0")
    assert ask("helm", tmp_path, HELM=str(other)).stdout.strip() == str(other)


def test_a_variable_that_does_not_fit_is_refused(tmp_path: pathlib.Path) -> None:
    other = program(tmp_path / "other", "echo v3.0.0")
    answer = ask("helm", tmp_path, HELM=str(other))
    assert answer.returncode == 1
    assert answer.stderr == f"HELM={other} is not a working helm v4\n"


def test_a_failed_build_says_so(tmp_path: pathlib.Path) -> None:
    program(tmp_path / "go", "echo no proxy >&2; exit 1")
    answer = ask("kubeconform", tmp_path)
    assert answer.returncode == 1
    assert "building kubeconform failed. Install kubeconform v" in answer.stderr


def test_an_invalid_object_is_found() -> None:
    with pytest.raises(InvalidError, match="additional properties 'replica' not allowed"):
        chartlib.validate(DEPLOYMENT)


def test_missing_schemas_are_a_failure_that_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFORM_SCHEMAS", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    with pytest.raises(InvalidError, match="Set KUBECONFORM_SCHEMAS to a copy"):
        chartlib.validate(DEPLOYMENT)
