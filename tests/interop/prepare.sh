#!/usr/bin/env bash
# Make the environment of the interop tests: prepare.sh VENV REQUIREMENTS
#
# ModelExpress imports torch. Debian's python3-torch (CPU) is enough and comes from the system's package manager; INTEROP_PYTHON names
# another interpreter that has torch.
set -euo pipefail
venv=$1 requirements=$2
python=${INTEROP_PYTHON:-/usr/bin/python3}

has() { "$python" -c "import $1" 2>/dev/null; }

missing=()
has torch || missing+=(python3-torch)
has ensurepip || missing+=(python3-venv)
if [ ${#missing[@]} -gt 0 ]; then
  if [ -n "${INTEROP_PYTHON:-}" ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "interop-test needs ${missing[*]} for $python: run 'sudo apt-get install ${missing[*]}'," \
      "or set INTEROP_PYTHON to a Python that has torch" >&2
    exit 1
  fi
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

rm -rf "$venv"
"$python" -m venv --system-site-packages "$venv"
# Without their dependencies: the list is complete for what is used, and modelexpress asks for a torch that Debian does not have.
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --requirement "$requirements"
"$venv/bin/python" -c 'import blake3, grpc, google.protobuf, numpy, pydantic, pytest, torch'
