"""A page of PyTorch's debug server (torch.distributed.debug, 2.15 on) that answers as `fairring why` does.

    from torch.distributed.debug import start_debug_server
    from torch.distributed.debug._debug_handlers import default_handlers
    from fairring.trace.page import WhyHandler

    start_debug_server(handlers=[*default_handlers(), WhyHandler()])

The ranks' traces come over the server's own connections: no FAIRRING_TRACE, no directory that machines share.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all

from fairring.trace.files import parse
from fairring.trace.records import RankTrace, TraceError
from fairring.trace.words import explain
from fairring.trace.worker import TRACES

if TYPE_CHECKING:
    from torch.distributed.debug._frontend import HTTPRequestHandler, Response

_LAST = 200  # calls that are examined
_TEMPLATE = """
{% extends "base.html" %}
{% block header %}
    <h1>{% block title %}Fairring: who is slow, and why{% endblock %}</h1>
{% endblock %}
{% block content %}
    {% for line in told.splitlines() %}<p>{{ line | e }}</p>
    {% endfor %}
{% endblock %}
"""


class WhyHandler(DebugHandler):
    def routes(self) -> list[Route]:
        return [Route("/fairring", self._handle)]

    def nav_links(self) -> list[NavLink]:
        return [NavLink("/fairring", "Fairring")]

    def templates(self) -> dict[str, str]:
        return {"fairring.html": _TEMPLATE}

    def dump(self) -> str:
        return told(fetch_all(TRACES, f"last={_LAST + 1}", timeout=self.fetch_timeout)[1])

    def dump_filename(self) -> str:
        return "fairring"

    def _handle(self, request: HTTPRequestHandler) -> bytes:
        return request.frontend.render_template("fairring.html", told=self.dump())


def told(answers: Sequence[Response]) -> str:
    """answers: of the job's ranks, in order."""
    lines = []
    groups: dict[str, list[RankTrace]] = defaultdict(list)
    for rank, answer in enumerate(answers):
        if answer.status_code != 200:
            lines.append(f"rank {rank} does not answer: {answer.text}")
            continue
        try:
            for one in map(parse, json.loads(answer.text)):
                groups[one.group].append(one)
        except (TraceError, ValueError, TypeError) as error:
            lines.append(f"rank {rank} does not answer with traces: {error}")
    for name, ranks in groups.items():
        try:
            lines.append(explain(sorted(ranks, key=lambda one: one.rank), _LAST))
        except TraceError as error:
            lines.append(f"Group {name}: {error}")
    return "\n".join(lines) or "No group of Fairring's has made a call yet."
