"""The page of PyTorch's debug server: every rank answers by the server's own connections, without FAIRRING_TRACE."""

from __future__ import annotations

import pytest
from lab_programs import needs_namespaces, program

from fairring.lab import run

pytest.importorskip("torch.distributed.debug._frontend", reason="PyTorch 2.15 brings the debug server")


@needs_namespaces
def test_the_page_tells_what_all_ranks_have_seen() -> None:
    result = run(program("debug_page"), [2], timeout=280)
    assert result.exit_code == 0, result.output
    page = result.stdout[0]
    assert "Group 0, 2 ranks: " in page
    assert "rank 2 does not answer: &lt;nobody&gt; is there" in page


@pytest.mark.parametrize("text", ["<html>", "7", "[7]", '["{}"]', "null"])
def test_a_rank_that_answers_with_something_else_is_told_of(text: str) -> None:
    from torch.distributed.debug._frontend import Response

    from fairring.trace.page import told

    assert "rank 0 does not answer with traces" in told([Response(200, text)])
