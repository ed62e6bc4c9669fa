"""From nothing to committed: whole or not there, ours or refused by name."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from model_parts import IDENTITY, OTHER_IDENTITY, catalogs_of, contents_of, digests_of, fill

from shardpool.errors import IntegrityError, StoreError
from shardpool.model.catalog import Catalog
from shardpool.model.directory import ModelDirectory
from shardpool.model.store import ShardStore

PIECE = 128 * 1024


@pytest.fixture
def directory(volume: Path) -> ModelDirectory:
    made = ModelDirectory(volume / "model")
    made.prepare(IDENTITY)
    return made


def load(directory: ModelDirectory, source: Path, layout: str = "whole", world: int = 1) -> list[Catalog]:
    """Fill every rank's shard."""
    catalogs = catalogs_of(source, layout, world, piece_size=PIECE)
    for catalog in catalogs:
        store = ShardStore(directory, catalog)
        store.open()
        fill(store, source)
        store.close()
    return catalogs


@pytest.mark.parametrize(("layout", "world"), [("whole", 1), ("striped", 1), ("striped", 3), ("sharded", 2)])
def test_what_is_committed_is_the_published_tree_byte_for_byte(
    directory: ModelDirectory, source: Path, per_rank_source: Path, layout: str, world: int
) -> None:
    published = per_rank_source if layout == "sharded" else source
    load(directory, published, layout, world)
    assert not directory.path.exists()
    directory.commit(IDENTITY)
    assert contents_of(directory.path) == contents_of(published)
    assert directory.committed(IDENTITY.mx_source_id())
    for path in (directory.path, *directory.path.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222, f"{path} can be written"
    directory.commit(IDENTITY)
    assert sorted(path.name for path in directory.path.parent.iterdir()) == [".model.shardpool", "model"]


@pytest.mark.parametrize(("layout", "world"), [("whole", 1), ("sharded", 2)])
def test_a_restart_serves_what_is_committed_without_asking_for_a_byte(
    directory: ModelDirectory, source: Path, per_rank_source: Path, layout: str, world: int
) -> None:
    published = per_rank_source if layout == "sharded" else source
    load(directory, published, layout, world)
    directory.commit(IDENTITY)
    again = ModelDirectory(directory.path)
    again.prepare(IDENTITY)
    for rank in range(world):
        catalog = again.saved_catalog(rank)
        assert catalog is not None
        store = ShardStore(again, catalog)
        assert store.open() == digests_of(catalog, published)
        with pytest.raises(StoreError, match="sealed"):
            store.destination(0)
        assert store.digest(0) == digests_of(catalog, published)[0]
        store.close()
    assert again.committed(IDENTITY.mx_source_id())


def test_a_committed_directory_that_changed_is_hidden_and_mended(directory: ModelDirectory, source: Path) -> None:
    (catalog,) = load(directory, source)
    directory.commit(IDENTITY)
    victim = directory.path / "model-00002-of-00002.safetensors"
    victim.chmod(0o644)
    with open(victim, "r+b") as file:
        file.seek(300_000)
        file.write(b"\xff\0\xff\0")
    again = ModelDirectory(directory.path)
    again.prepare(IDENTITY)
    store = ShardStore(again, catalog)
    kept = store.open()
    assert len(kept) == catalog.pieces - 1
    assert not directory.path.exists()
    fill(store, source, range(*next((p, p + 1) for p in range(catalog.pieces) if p not in kept)))
    again.commit(IDENTITY)
    store.close()
    assert contents_of(directory.path) == contents_of(source)


def test_a_file_deleted_from_a_committed_directory_is_fetched_again(directory: ModelDirectory, source: Path) -> None:
    (catalog,) = load(directory, source)
    directory.commit(IDENTITY)
    (directory.path / "1_Pooling").chmod(0o755)
    (directory.path / "1_Pooling" / "config.json").unlink()
    store = ShardStore(directory, catalog)
    assert len(store.open()) < catalog.pieces
    fill(store, source)
    store.close()
    directory.commit(IDENTITY)
    assert contents_of(directory.path) == contents_of(source)


def test_an_unfinished_load_is_never_committed(directory: ModelDirectory, source: Path) -> None:
    (catalog,) = catalogs_of(source, piece_size=PIECE)
    store = ShardStore(directory, catalog)
    store.open()
    fill(store, source, range(catalog.pieces - 1))
    with pytest.raises(StoreError, match=rf"1 of {catalog.pieces} pieces of rank 0 are not verified"):
        directory.commit(IDENTITY)
    store.close()
    assert not directory.path.exists()


def test_a_rank_that_is_missing_keeps_the_directory_hidden(directory: ModelDirectory, source: Path) -> None:
    catalogs = load(directory, source, "striped", 3)
    with pytest.raises(StoreError, match="no local rank holds byte"):
        directory.commit(IDENTITY, catalogs[:2])
    assert not directory.path.exists()
    directory.commit(IDENTITY, catalogs)


def test_nothing_loaded_is_not_committed(directory: ModelDirectory) -> None:
    with pytest.raises(StoreError, match="nothing was loaded"):
        directory.commit(IDENTITY)


def test_ranks_with_different_common_files_are_not_committed(directory: ModelDirectory, per_rank_source: Path) -> None:
    catalogs = load(directory, per_rank_source, "sharded", 2)
    odd = directory.file_path(catalogs[1], next(entry for entry in catalogs[1].files if entry.path == "config.json"))
    odd.write_bytes(odd.read_bytes()[::-1])
    with pytest.raises(IntegrityError, match=r"different bytes of 'config\.json'"):
        directory.commit(IDENTITY)
    assert not directory.path.exists()


def test_what_does_not_belong_in_the_tree_does_not_become_visible(directory: ModelDirectory, source: Path) -> None:
    load(directory, source)
    (directory.tree / "leftover").mkdir()
    (directory.tree / "leftover" / "x.tmp").write_bytes(b"x")
    (directory.tree / "note.txt").write_bytes(b"x")
    directory.commit(IDENTITY)
    assert contents_of(directory.path) == contents_of(source)
    assert not (directory.path / "leftover").exists()


def test_another_identitys_directory_is_refused_by_name(directory: ModelDirectory, source: Path) -> None:
    load(directory, source)
    directory.commit(IDENTITY)
    other = ModelDirectory(directory.path)
    with pytest.raises(StoreError, match=r"model holds another model \(revision: ours .b+.*, theirs .a+") as refusal:
        other.prepare(OTHER_IDENTITY)
    assert "SHARDPOOL_DIRECTORY" in str(refusal.value)
    with pytest.raises(StoreError, match=IDENTITY.mx_source_id()):
        other.committed(OTHER_IDENTITY.mx_source_id())
    assert contents_of(directory.path) == contents_of(source)


def test_what_another_identity_left_unfinished_is_removed(directory: ModelDirectory, source: Path) -> None:
    load(directory, source)
    other = ModelDirectory(directory.path)
    with pytest.raises(StoreError, match="another model"):
        other.commit(OTHER_IDENTITY)
    other.prepare(OTHER_IDENTITY)
    assert not other.tree.exists()
    assert other.saved_catalogs() == []


def test_what_ranks_of_another_pod_left_is_removed(directory: ModelDirectory, source: Path) -> None:
    load(directory, source, "striped", 3)
    directory.prepare(IDENTITY, ranks=[1])
    assert [catalog.rank for catalog in directory.saved_catalogs()] == [1]


def test_a_directory_that_is_not_ours_is_refused_and_left_alone(volume: Path) -> None:
    (volume / "model").mkdir()
    (volume / "model" / "precious").write_bytes(b"x")
    with pytest.raises(StoreError, match="not made by shardpool"):
        ModelDirectory(volume / "model").prepare(IDENTITY)
    assert contents_of(volume / "model") == {"precious": b"x"}


def test_a_directory_that_appears_meanwhile_is_not_replaced(directory: ModelDirectory, source: Path) -> None:
    load(directory, source)
    directory.path.mkdir()
    (directory.path / "precious").write_bytes(b"x")
    with pytest.raises(StoreError, match="not made by shardpool"):
        directory.commit(IDENTITY)
    assert contents_of(directory.path) == {"precious": b"x"}
    with pytest.raises(StoreError, match="not made by shardpool"):
        directory.prepare(IDENTITY)


def test_an_empty_directory_in_its_place_is_used(volume: Path, source: Path) -> None:
    (volume / "model").mkdir()
    directory = ModelDirectory(volume / "model")
    directory.prepare(IDENTITY)
    load(directory, source)
    directory.commit(IDENTITY)
    assert contents_of(directory.path) == contents_of(source)


def test_a_file_in_its_place_is_refused(volume: Path) -> None:
    (volume / "model").write_bytes(b"x")
    with pytest.raises(StoreError, match="is a file"):
        ModelDirectory(volume / "model").prepare(IDENTITY)


def test_a_mount_point_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(StoreError, match="/proc is a mount point"):
        ModelDirectory("/proc").prepare(IDENTITY)


def test_a_place_that_cannot_be_written_is_named() -> None:
    with pytest.raises(StoreError, match="/proc/none"):
        ModelDirectory("/proc/none/model").prepare(IDENTITY)


@pytest.mark.parametrize("moment", ["before the rename", "after the rename"])
def test_a_death_in_the_middle_of_the_commit_is_made_good(
    directory: ModelDirectory, source: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    load(directory, source)

    class Death(BaseException):
        """Nothing catches it."""

    real = os.rename

    def dying(old: Path, new: Path) -> None:
        if moment == "after the rename":
            real(old, new)
        raise Death

    monkeypatch.setattr(os, "rename", dying)
    with pytest.raises(Death):
        directory.commit(IDENTITY)
    monkeypatch.undo()
    again = ModelDirectory(directory.path)
    again.prepare(IDENTITY)
    assert again.committed(IDENTITY.mx_source_id()) == (moment == "after the rename")
    catalog = again.saved_catalog(0)
    assert catalog is not None
    store = ShardStore(again, catalog)
    assert len(store.open()) == catalog.pieces
    store.close()
    again.commit(IDENTITY)
    assert contents_of(again.path) == contents_of(source)


def test_a_death_while_hiding_is_made_good(
    directory: ModelDirectory, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(directory, source)
    directory.commit(IDENTITY)
    directory.path.chmod(0o755)
    directory.path.rename(directory.tree)  # ... and the marker still says committed
    again = ModelDirectory(directory.path)
    again.prepare(IDENTITY)
    assert not again.committed(IDENTITY.mx_source_id())
    catalog = again.saved_catalog(0)
    assert catalog is not None
    store = ShardStore(again, catalog)
    assert len(store.open()) == catalog.pieces
    store.close()
    again.commit(IDENTITY)
    assert contents_of(again.path) == contents_of(source)


def test_the_owner_is_named_to_whoever_comes_second(directory: ModelDirectory) -> None:
    code = (
        "import sys; from shardpool.model.directory import ModelDirectory; d = ModelDirectory(sys.argv[1]); d.lock(); "
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(directory.path)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(StoreError, match=rf"in use by pid {process.pid} on"):
            directory.lock()
        with pytest.raises(StoreError, match=rf"in use by pid {process.pid} on"):
            directory.clean()
        process.kill()
        process.wait(30)
    with directory.lock():
        directory.clean()
    assert not directory.state.exists()


def test_the_lock_can_be_given_back_and_taken_again(directory: ModelDirectory) -> None:
    directory.lock()
    directory.unlock()
    directory.unlock()
    with directory.lock() as lock:
        assert lock.held
    assert not lock.held


def test_cleaning_removes_what_is_not_committed_and_keeps_what_is(directory: ModelDirectory, source: Path) -> None:
    load(directory, source)
    directory.clean()
    directory.clean()
    assert list(directory.path.parent.iterdir()) == []
    directory.prepare(IDENTITY)
    load(directory, source)
    directory.commit(IDENTITY)
    directory.clean()
    assert contents_of(directory.path) == contents_of(source)
    assert directory.saved_catalog(0) is not None


@pytest.mark.parametrize(
    "marker",
    [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "phase": "odd", "mx_source_id": "", "identity": ""}'],
)
def test_a_marker_that_means_nothing_counts_as_none(directory: ModelDirectory, source: Path, marker: bytes) -> None:
    load(directory, source)
    (directory.state / "marker").write_bytes(marker)
    again = ModelDirectory(directory.path)
    assert not again.committed(IDENTITY.mx_source_id())
    again.prepare(IDENTITY)
    assert not again.tree.exists()


def test_a_state_of_another_version_is_refused(directory: ModelDirectory) -> None:
    (directory.state / "marker").write_text(json.dumps({"version": 99}))
    with pytest.raises(StoreError, match="another version of shardpool"):
        directory.prepare(IDENTITY)


def test_an_outline_that_rotted_is_not_used(directory: ModelDirectory, source: Path) -> None:
    load(directory, source)
    path = directory.state / "rank-0.catalog"
    path.write_bytes(path.read_bytes()[:-1])
    assert directory.saved_catalog(0) is None
    assert directory.saved_catalog(1) is None


def test_a_link_in_the_tree_is_never_written_through(directory: ModelDirectory, source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    directory.tree.mkdir()
    (directory.tree / "config.json").symlink_to(outside)
    store = ShardStore(directory, catalogs_of(source, piece_size=PIECE)[0])
    outside.chmod(0o600)
    with pytest.raises(StoreError, match=r"config\.json is not a regular file"):
        store.open()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600
    assert outside.read_bytes() == b"precious"


def test_a_rank_that_starts_anew_waits_for_a_commit_and_then_serves_it(directory: ModelDirectory, source: Path) -> None:
    (catalog,) = load(directory, source)
    opened: list[dict[int, bytes]] = []
    store = ShardStore(ModelDirectory(directory.path), catalog)
    starter = threading.Thread(target=lambda: opened.append(store.open()))
    with directory.changing():
        starter.start()
        starter.join(0.2)
        assert opened == []
        directory.tree.rename(directory.path)
        marker = json.loads((directory.state / "marker").read_text())
        (directory.state / "marker").write_text(json.dumps({**marker, "phase": "committed"}))
    starter.join(30)
    assert len(opened[0]) == catalog.pieces
    assert not directory.tree.exists()
    store.close()
