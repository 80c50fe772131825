"""The seam against the wheels of every version of SGLang that it claims, and FlashInfer's first and last.

Wheels are fetched once, by hash, into ``$EQUIPOISE_CACHE/wheels``, and only read: the checker imports nothing of them.
That it can fail is shown on a wheel in which something was moved.
"""

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("EQUIPOISE_CACHE", "~/.cache/equipoise")).expanduser() / "wheels"
DOWNLOAD_LIMIT_S = 600

SGLANG: Mapping[str, str] = {
    "0.5.17": "575e38f5683624ded3b4bb267f637a098e5ed37d13a1d1ff5ea09bd781a04d16",
    "0.5.18": "e97b585dd2d5db2802599feba47c84cce972f5e1231a6816fef996200207b5cf",
    "0.5.19": "425e87377e725d03db8262382008f3fd9561a6cf5d82f485f8b9929f02ffe12b",
    "0.5.20": "1573527042f4f6b4ead838302818595fc77fdc611dbcc2e40cd150fbc8f8513c",
    "0.5.21": "96c029f75dec99baa33a5db3d41b1bebefdd6bcfba3a2f7c807fe1cf49a87c20",
    "0.5.22": "cc9a0f15bd8f877a0584fdb7a1702240177a1f1cc8d17c978715161717b9037b",
    "0.5.23": "00b3cd5b265ac76c64185fbb6b95424f324ddd9f428d0306b77bc9db9d859937",
}
FLASHINFER: Mapping[str, str] = {
    "0.6.15.post1": "f2419fd2b77c2705816e8d0a31c784c6456b17f373f8494b5cfc3bdf434d5c44",
    "0.7.2": "770550a0aa92b2f10e6c9a1f048dd43713f0f3bb6a12710186fcf8e4e9c99bd8",
}
PINNED_FLASHINFER = {"0.5.17": "0.6.15.post1", "0.5.23": "0.7.2"}
"""What these versions of SGLang pin; for the versions between them only SGLang's own side is read."""
PLATFORM = ["--python-version", "3.11", "--platform", "manylinux_2_34_x86_64", "--platform", "any"]
BACKEND = "sglang/srt/layers/attention/trtllm_mha_backend.py"


def wheel(package: str, version: str, sha256: str) -> Path:
    """The wheel in the cache, downloaded if it is not there; skips the test if it cannot be had."""
    CACHE.mkdir(parents=True, exist_ok=True)
    pattern = f"{package.replace('-', '_')}-{version}-*.whl"
    with FileLock(CACHE / f"{package}-{version}.lock"):
        if not list(CACHE.glob(pattern)):
            download(package, version, sha256)
        return next(CACHE.glob(pattern))


def download(package: str, version: str, sha256: str) -> None:
    pins = CACHE / f"{package}-{version}.txt"
    pins.write_text(f"{package}=={version} --hash=sha256:{sha256}\n")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
    ]
    command = [*pip, *PLATFORM, "--require-hashes", "-r", str(pins), "-d", str(CACHE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"could not download {package} {version} within {DOWNLOAD_LIMIT_S} s")
    if "DO NOT MATCH THE HASHES" in done.stderr:
        pytest.fail(f"{package} {version} is not the file that was read: {done.stderr[-500:]}")
    if done.returncode != 0:
        pytest.skip(f"could not download {package} {version}: {done.stderr.strip().splitlines()[-1:]}")


def checked(version: str, wheels: Sequence[Path]) -> tuple[int, list[str]]:
    """Exit code and lines of the plugin's checker."""
    done = subprocess.run(
        [sys.executable, "-m", "equipoise_backends.wheels", version, *map(str, wheels)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "backends")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("version", SGLANG)
def test_the_seam_holds(version: str) -> None:
    wheels = [wheel("sglang", version, SGLANG[version])]
    if version in PINNED_FLASHINFER:
        pinned = PINNED_FLASHINFER[version]
        wheels.append(wheel("flashinfer-python", pinned, FLASHINFER[pinned]))
    assert checked(version, wheels) == (0, [])


def test_the_plugin_claims_exactly_these_versions() -> None:
    code = "from equipoise_backends.seam import CHECKED_VERSIONS; print(*CHECKED_VERSIONS)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "backends")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == list(SGLANG)


def changed(source: Path, target: Path, old: str, new: str) -> Path:
    """A copy of a wheel in which a text of the TRTLLM MHA backend is another."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            content = before.read(name) if name.endswith(".py") else b""
            if name == BACKEND:
                assert old.encode() in content
                content = content.replace(old.encode(), new.encode())
            after.writestr(name, content)
    return target


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("class TRTLLMHAAttnBackend(", "class TRTLLMHAAttentionBackend(", "TRTLLMHAAttnBackend.__init__: gone"),
        ("    def forward_extend(", "    def forward_prefill(", "TRTLLMHAAttnBackend.forward_extend: gone"),
        (
            "def forward_decode(\n        self,\n        q:",
            "def forward_decode(\n        self,\n        query:",
            "forward_decode: takes (self, query, k, v, layer, forward_batch, save_kv_cache), not (self, q, k,",
        ),
        (
            "multi_ctas_kv_counter_buffer=self._multi_ctas_kv_counter_buffer",
            "counters=self._counters",
            "multi_ctas_kv_counter_buffer=self._multi_ctas_kv_counter_buffer not in its source",
        ),
        ("self.is_xqa_impl", "self.uses_xqa", "self.is_xqa_impl not in its source"),
    ],
    ids=["class", "method", "parameters", "counters", "attribute"],
)
def test_a_change_is_named(old: str, new: str, says: str, tmp_path: Path) -> None:
    version = "0.5.23"
    source = wheel("sglang", version, SGLANG[version])
    code, lines = checked(version, [changed(source, tmp_path / "sglang-changed.whl", old, new)])
    assert code == 1
    assert any(says in line for line in lines), lines
