"""Writing the wiki folder: bounded row groups, no page in two, and a folder that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from opensearch_vl.errors import RunExists, StorageFull

MAX_GROUP_ROWS = 50_000
MAX_GROUP_CHARS = 2_000_000
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class TableWriter:
    """Appends rows to one Parquet file. Row groups end only where `end_key` is called.

    Args:
        file: The file to write.
        schema: Its Arrow schema; rows are sequences in this order.
        group_chars: Size of the long texts, or bytes, at which a row group ends.
    """

    def __init__(self, file: Path, schema: Any, group_chars: int = MAX_GROUP_CHARS) -> None:
        self._schema = schema
        self._group_chars = group_chars
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")
        self._columns: list[list[Any]] = [[] for _ in schema]
        self._chars = 0
        self.num_rows = 0

    def add(self, *row: Any, chars: int = 0) -> None:
        """Buffer one row; `chars` is the length of its long texts."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._chars += chars
        self.num_rows += 1

    def end_key(self) -> None:
        """All rows of the current page are in: a row group may end here."""
        if len(self._columns[0]) >= MAX_GROUP_ROWS or self._chars >= self._group_chars:
            self._flush()

    def add_table(self, table: Any) -> None:
        """Write an Arrow table as one row group."""
        self._flush()
        if table.num_rows:
            self._writer.write_table(table.cast(self._schema), row_group_size=table.num_rows)
            self.num_rows += table.num_rows

    def _flush(self) -> None:
        size = len(self._columns[0])
        if size:
            arrays = [pa.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=size)
            self._columns = [[] for _ in self._schema]
            self._chars = 0

    def close(self) -> None:
        """Write what is buffered and finish the file."""
        self._flush()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with contextlib.suppress(OSError, pa.ArrowException):  # the folder is about to be thrown away
                self._writer.close()


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A scratch folder beside `out` that becomes `out` if the block succeeds, and vanishes if it does not.

    Raises:
        RunExists: `out` is already there.
        StorageFull: The disk or quota is exhausted, or the place cannot be written to.
    """
    if out.exists() or out.is_symlink():
        raise RunExists(f"{out} already exists.", "Choose another --out, or remove it first.")
    scratch = out.with_name(f".{out.name}.building-{os.getpid()}")
    try:
        scratch.mkdir(parents=True)
        yield scratch
        scratch.rename(out)
    except OSError as error:
        if error.errno in _FULL or (error.filename is not None and str(scratch) in str(error.filename)):
            raise StorageFull(
                f"Cannot write {out}: {error.strerror}.", "Free some space or choose another --out."
            ) from error
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def rows_of(file: Path, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The row groups of a Parquet file as Arrow tables, one at a time."""
    parquet = pq.ParquetFile(file)
    for index in range(parquet.num_row_groups):
        yield parquet.read_row_group(index, columns=list(columns) if columns else None)
    parquet.close()
