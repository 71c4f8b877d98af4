"""A merged trace in SQLite, as the tables of Perfetto's trace processor: those columns that the documents use."""

from __future__ import annotations

import sqlite3
from typing import Any

SCHEMA = """
create table process (upid integer primary key, pid integer, name text);
create table thread (utid integer primary key, upid integer, tid integer, name text);
create table thread_track (id integer primary key, utid integer);
create table slice (ts integer, dur integer, name text, track_id integer, arg_set_id integer);
"""


def tables(whole: dict[str, Any]) -> sqlite3.Connection:
    """whole: as `fairring trace merge` writes it. Times: nanoseconds since 1970."""
    database = sqlite3.connect(":memory:")
    database.executescript(SCHEMA)
    arguments: list[dict[str, Any]] = []
    database.create_function("extract_arg", 2, lambda place, key: arguments[place].get(key.removeprefix("args.")))
    threads: dict[tuple[int, int], int] = {}
    for event in whole["traceEvents"]:
        pid, thread = event["pid"], threads.setdefault((event["pid"], event["tid"]), len(threads))
        if event["ph"] == "X":
            began, lasts = (round(event[key] * 1000) for key in ("ts", "dur"))
            row = (whole["baseTimeNanoseconds"] + began, lasts, event["name"], thread, len(arguments))
            database.execute("insert into slice values (?, ?, ?, ?, ?)", row)
            arguments.append(event["args"])
        elif event["name"] == "process_name":
            database.execute("insert into process values (?, ?, ?)", (pid, pid, event["args"]["name"]))
        elif event["name"] == "thread_name":
            database.execute(
                "insert into thread values (?, ?, ?, ?)", (thread, pid, event["tid"], event["args"]["name"])
            )
            database.execute("insert into thread_track values (?, ?)", (thread, thread))
    return database
