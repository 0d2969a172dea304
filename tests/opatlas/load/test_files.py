"""An artifact's files: what is read is what was checked, and what is mapped cannot be changed."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from opatlas.errors import LoadError
from opatlas.load import files
from opatlas.load.files import SharedLibrary, check_name, read_verified, sealed_memory_file


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def sealed() -> int:
    descriptor = sealed_memory_file("kernel.so", b"checked")
    yield descriptor
    os.close(descriptor)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("library")
    (folder / "seven.c").write_text("int seven(void) { return 7; }")
    subprocess.run(["cc", "-shared", "-o", "seven.so", "seven.c"], cwd=folder, check=True)
    return (folder / "seven.so").read_bytes()


class TestSealed:
    def test_it_holds_the_content_and_is_not_inherited(self, sealed: int) -> None:
        assert os.pread(sealed, 100, 0) == b"checked"
        assert not os.get_inheritable(sealed)
        assert "kernel.so" in str(Path(f"/proc/self/fd/{sealed}").readlink())

    def test_nobody_can_write_to_it(self, sealed: int) -> None:
        with pytest.raises(PermissionError):
            os.pwrite(sealed, b"swapped", 0)

    @pytest.mark.parametrize("length", [3, 4096])
    def test_nobody_can_change_its_length(self, sealed: int, length: int) -> None:
        with pytest.raises(PermissionError):
            os.ftruncate(sealed, length)

    def test_nobody_can_change_the_seals(self, sealed: int) -> None:
        with pytest.raises(PermissionError):
            fcntl.fcntl(sealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


class TestReading:
    def test_all_files_by_name(self, tmp_path: Path) -> None:
        contents = {"a.so": b"one", "b-2.txt": b"two"}
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
        assert read_verified(tmp_path, {name: digest_of(c) for name, c in contents.items()}) == contents

    def test_another_content_is_refused_with_both_digests(self, tmp_path: Path) -> None:
        (tmp_path / "a.so").write_bytes(b"swapped")
        wanted, found = digest_of(b"checked"), digest_of(b"swapped")
        with pytest.raises(LoadError) as refused:
            read_verified(tmp_path, {"a.so": wanted})
        assert str(refused.value) == (
            f"file a.so has SHA-256 {found[:12]}…, the manifest says {wanted[:12]}…"
        )

    def test_no_name_is_read_before_all_are_checked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a.so").write_bytes(b"one")
        monkeypatch.setattr(files, "_read", lambda *given: pytest.fail("it read"))
        with pytest.raises(LoadError, match="is not plain"):
            read_verified(tmp_path, {"a.so": digest_of(b"one"), "../b.so": digest_of(b"two")})

    def test_a_symbolic_link_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "real").write_bytes(b"one")
        (tmp_path / "link").symlink_to(tmp_path / "real")
        with pytest.raises(LoadError, match="file link cannot be read: Too many levels of symbolic links"):
            read_verified(tmp_path, {"link": digest_of(b"one")})

    def test_as_large_as_allowed_is_read_and_a_byte_more_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "MAX_FILE_BYTES", 3)
        (tmp_path / "a.so").write_bytes(b"one")
        (tmp_path / "b.so").write_bytes(b"four")
        assert read_verified(tmp_path, {"a.so": digest_of(b"one")}) == {"a.so": b"one"}
        with pytest.raises(LoadError, match=r"file b\.so is larger than 3 bytes"):
            read_verified(tmp_path, {"b.so": digest_of(b"four")})


def test_a_name_that_is_not_plain_is_told_cut_to_what_fits() -> None:
    check_name("_K.1+x-" + "a" * 121)
    with pytest.raises(LoadError) as refused:
        check_name("/" + "a" * 200)
    assert str(refused.value) == (
        f"file name {'/' + 'a' * 139!r} is not plain; use letters, digits and _ . + -,"
        " a letter or digit first"
    )


class TestLibrary:
    def test_it_is_loaded_from_memory_until_it_is_closed(self, library: bytes) -> None:
        loaded = SharedLibrary(library, "seven.so")
        assert loaded.handle.seven() == 7
        assert loaded.handle._name == f"/proc/self/fd/{loaded._descriptor}"
        descriptor = loaded._descriptor
        loaded.close()
        loaded.close()
        assert loaded.handle is None and loaded._descriptor == -1
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)

    def test_closing_unloads_it(self, library: bytes) -> None:
        loaded = SharedLibrary(library, "seven.so")
        path = "/memfd:seven.so"
        assert path in Path("/proc/self/maps").read_text()
        loaded.close()
        assert path not in Path("/proc/self/maps").read_text()

    def test_where_memory_has_no_files_it_comes_from_a_folder_that_is_gone_at_once(
        self, library: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delattr(os, "memfd_create")
        monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
        loaded = SharedLibrary(library, "seven.so")
        assert loaded.handle.seven() == 7
        folder = Path(loaded.handle._name).parent
        assert folder.parent == tmp_path and folder.name.startswith("opatlas-")
        assert loaded.handle._name.endswith("/seven.so") and list(tmp_path.iterdir()) == []
        loaded.close()

    def test_what_is_no_library_leaves_nothing_open(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[int] = []

        def noted(name: str, content: bytes) -> int:
            made.append(sealed_memory_file(name, content))
            return made[-1]

        monkeypatch.setattr(files, "sealed_memory_file", noted)
        with pytest.raises(LoadError, match=r"^library odd\.so cannot be loaded: .*file too short"):
            SharedLibrary(b"no", "odd.so")
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(made[0])


def test_the_linker_is_asked_through_ctypes(library: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where /proc is there: without it the path would lead nowhere."""
    monkeypatch.setattr(files.Path, "exists", lambda self: str(self) != "/proc/self/fd")
    loaded = SharedLibrary(library, "seven.so")
    assert isinstance(loaded.handle, ctypes.CDLL) and loaded._descriptor == -1
    loaded.close()
