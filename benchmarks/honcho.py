"""A dead primary in a Honcho of yours: how often it is asked, and when the fallback is.

    python -m benchmarks.honcho HONCHO --python HONCHO/.venv/bin/python --database URI

HONCHO is a checkout, as it is or with this package in its call path; the Python is one that can
import it. Each case runs in a process of its own, through the functions that Honcho's workers and
routes call: the deriver's ``process_representation_tasks_batch``, the dialectic agent's ``answer``
and ``answer_stream``. The providers are on loopback, where each refuses the other's messages with
a 400 as the vendors do, and Honcho's clients wait three seconds for them.

The database is a Postgres with pgvector for nothing but this, such as
``postgresql+psycopg://postgres@127.0.0.1:5432/bench``. Tools search in it and conclusions are
saved; without one tools fail, which the models do not mind, and conclusions are not saved.
tiktoken would download its vocabulary, so that a byte is a token here.

``requests`` are those that failed at the primary: an SDK's own retries are among them. ``to
fallback`` is seconds from the first of these to the first request at the fallback, ``in all`` is
the whole job, whose clients are made before. A Honcho that retries takes ten minutes for a table.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.report import table
from tests.helpers import wire
from tests.helpers.provider import ProviderServer, Reply
from tests.helpers.strict import AnthropicRules, ChatRules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.helpers.provider import SeenRequest
    from tests.helpers.wire import Json

TIMEOUT = 3
MARK = "outcome: "
SEARCH = ("search_memory", {"query": "tea"})
FACTS = json.dumps({"explicit": [{"content": "alice likes tea"}]})
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.1] * 1536}
EMBEDDING = {"object": "list", "data": [VECTOR], "model": "e", "usage": {"prompt_tokens": 1}}
RESULT_KEYS = ("tool_call_id", "tool_use_id")  # of what a tool returned, in either form
CLOSED, JUNK = "closed port", "junk"
# What a dead primary does. Of the last two the one has nobody listening; of a tool loop it is a
# lost connection, because that primary is alive before and after. The other answers with what is
# no JSON, or, where none is wanted, as routers do whose provider has failed: an error under 200.
FAILURES: dict[str, Reply] = {
    "503": Reply(status=503),
    "429": Reply(status=429),
    "hang": Reply(hang=True),
    "401": Reply(status=401),
    CLOSED: Reply(drop=True),
    JUNK: Reply(),
}
HEAD = ("", "failure", "requests", "to fallback", "in all", "answered")

TOKENIZER = """
import tiktoken
ranks = {bytes([byte]): byte for byte in range(256)}
bytewise = tiktoken.Encoding("b", pat_str="(?s).", mergeable_ranks=ranks, special_tokens={})
tiktoken.get_encoding = tiktoken.encoding_for_model = lambda name: bytewise
"""
JOB = """
import asyncio, datetime, json, sys, time, uuid, httpx
from src import crud, models
from src.cache.client import init_cache
from src.config import resolve_model_config, settings
from src.crud.representation import RepresentationManager
from src.db import SessionLocal
from src.deriver.deriver import process_representation_tasks_batch
from src.dialectic.core import DialecticAgent
from src.llm.registry import backend_for_provider, client_for_model_config
from src.utils.config_helpers import get_configuration

verb, has_database = sys.argv[1], sys.argv[2] == "database"
workspace, sends, saved = {"workspace_name": f"bench-{uuid.uuid4().hex}"}, [], []
send, save = httpx.AsyncClient.send, RepresentationManager.save_representation

async def counted(self, request, **options):
    if not request.url.path.endswith("/embeddings"):
        sends.append((time.monotonic(), str(request.url)))
    return await send(self, request, **options)

async def noted(self, representation, *args, **options):
    saved.append(representation)
    if has_database:
        return await save(self, representation, *args, **options)
    return crud.CreateDocumentsResult()

httpx.AsyncClient.send, RepresentationManager.save_representation = counted, noted

async def stored():
    now = datetime.datetime.now(datetime.timezone.utc)
    message = models.Message(
        id=None if has_database else 1, session_name="tea", peer_name="alice", content="Tea!",
        public_id=uuid.uuid4().hex[:21], token_count=3, seq_in_session=1, created_at=now,
        **workspace,
    )
    if has_database:
        async with SessionLocal() as db:
            db.add(models.Workspace(name=workspace["workspace_name"]))
            await db.flush()
            db.add_all([models.Peer(name=name, **workspace) for name in ("alice", "bob")])
            db.add(models.Session(name="tea", **workspace))
            await db.flush()
            db.add(message)
            await db.commit()
    return message

async def derive(message):
    await process_representation_tasks_batch(
        [message], get_configuration(None, None, None), observers=["bob"], observed="alice",
        queue_item_message_ids=[message.id],
    )
    return saved

async def run():
    await init_cache()
    # A worker made its clients, and loaded the SDKs, long ago.
    primary = resolve_model_config(settings.DERIVER.MODEL_CONFIG)
    for config in (primary, primary.fallback):
        client = client_for_model_config(config.transport, config)
        backend_for_provider(config.transport, client)
        client.messages if config.transport == "anthropic" else client.chat.completions
    message = await stored()
    session = "tea" if has_database else None  # what is read from it is no tool's
    agent = DialecticAgent(session_name=session, observer="bob", observed="alice", **workspace)
    outcome = {"answered": False, "error": None, "sends": sends}
    begun = time.monotonic()
    try:
        if verb == "derive":
            answer = await derive(message)
        elif verb == "stream":
            answer = "".join([chunk async for chunk in agent.answer_stream("What is liked?")])
        else:
            answer = await agent.answer("What does alice like?")
        outcome["answered"] = bool(answer)
    except Exception as error:
        outcome["error"] = f"{type(error).__name__}: {error}"
    outcome["seconds"] = time.monotonic() - begun
    print("outcome: " + json.dumps(outcome))

asyncio.run(run())
"""


class Case(NamedTuple):
    """Say what is run.

    Args:
        verb: What the job does.
        fallback: The fallback's transport; the primary's is OpenAI's.
        tool_rounds: How often a model calls a tool before it answers.
        dead_in: The round of tools in which the primary is dead, or None for all.
    """

    verb: str
    fallback: str = "openai"
    tool_rounds: int = 1
    dead_in: int | None = None


CASES = {
    "deriver": Case("derive", tool_rounds=0),
    "dialectic": Case("answer"),
    "dialectic, streamed": Case("stream"),
    "dialectic, Anthropic fallback": Case("answer", "anthropic"),
    "the same, primary fine, dead, back": Case("answer", "anthropic", 2, dead_in=1),
}


class Model:
    """Answer as a model does that calls a tool so many times.

    Args:
        name: Whose words it says.
        case: What is run.
        failure: What it does where it is dead, or None if it lives.
    """

    def __init__(self, name: str, case: Case, failure: str | None = None) -> None:
        self.name, self.case, self.failure = name, case, failure
        self.failed: list[float] = []  # when those requests came

    def __call__(self, request: SeenRequest) -> Reply:
        body = request.body
        if request.path.endswith("embeddings"):
            return Reply(body=EMBEDDING | {"data": [VECTOR] * len(body["input"])})
        rounds = sum(str(body["messages"]).count(f"'{key}'") for key in RESULT_KEYS)
        if self.failure is not None and self.case.dead_in in {None, rounds}:
            self.failed.append(request.at)
            return junk(request) if self.failure == JUNK else FAILURES[self.failure]
        if rounds == self.case.tool_rounds or "tools" not in body:
            wants_facts = "response_format" in body
            return Reply(text=FACTS if wants_facts else f"{self.name}: alice likes tea")
        if request.path.endswith("messages"):
            return Reply(body=wire.message_answer(wire.tool_use(f"toolu_{rounds}", *SEARCH)))
        return Reply(body=wire.chat_answer(None, wire.chat_call(f"call_{rounds}", *SEARCH)))


def junk(request: SeenRequest) -> Reply:
    """Answer with what is no JSON, or an error under status 200."""
    if "response_format" in request.body:
        return Reply(text="I would rather not.")
    error: Json = {"error": {"message": wire.MESSAGE, "code": 502}}
    return Reply(body=error, events=[wire.event(error)] if request.wants_stream else None)


def run(case: Case, failure: str, honcho: Path, python: str, database: str | None) -> list[str]:
    """Run one case; return what it came to: requests, seconds, answer."""
    dead, alive = Model("primary", case, failure), Model("backup", case)
    with ProviderServer() as server, tempfile.TemporaryDirectory() as folder:
        primary, backup = server["primary"], server["backup"]
        primary.standing, backup.standing = dead, alive
        primary.rules = None if case.dead_in is None else ChatRules()  # the dead read nothing
        backup.rules = AnthropicRules() if case.fallback == "anthropic" else ChatRules()
        server["embedder"].standing = alive
        url = primary.url
        if failure == CLOSED and case.dead_in is None:
            url = f"http://127.0.0.1:{closed_port()}"
        Path(folder, "sitecustomize.py").write_text(TOKENIZER, "utf-8")
        environment = {
            **inherited(database),
            **settings(url, backup.url, server["embedder"].url, case.fallback),
            "PYTHONPATH": os.pathsep.join([folder, str(honcho)]),
        }
        command = [python, "-c", JOB, case.verb, "database" if database else "none"]
        ran = subprocess.run(
            command, cwd=honcho, env=environment, capture_output=True, text=True, check=False
        )
        refused = [*primary.refused, *backup.refused]
    lines = [line for line in ran.stdout.splitlines() if line.startswith(MARK)]
    if not lines:
        raise RuntimeError(f"the job ended without an outcome: {ran.stderr[-2000:]}")
    outcome = json.loads(lines[-1].removeprefix(MARK))
    sent: list[tuple[float, str]] = outcome["sends"]
    failed = dead.failed or [at for at, where in sent if where.startswith(url)]
    asked = [at for at, where in sent if where.startswith(backup.url)]
    if not failed:
        raise RuntimeError(f"the primary was not asked: {sent}, {ran.stderr[-2000:]}")
    gap = f"{asked[0] - failed[0]:.2f}" if asked else "never"
    answered = "yes" if outcome["answered"] else f"no: {outcome['error'] or 'nothing came'}"[:60]
    because = f" (400: {refused[0]})"[:60] if refused else ""
    return [str(len(failed)), gap, f"{outcome['seconds']:.2f}", answered + because]


def closed_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def inherited(database: str | None) -> dict[str, str]:
    """Return the environment that a job begins with: no key and no settings of this process."""
    wanted = ("HOME", "LANG", "PATH", "SYSTEMROOT", "TMPDIR")
    kept = {name: os.environ[name] for name in wanted if name in os.environ}
    nowhere = "postgresql+psycopg://none@127.0.0.1:1/none"
    switches = {"PYTHON_DOTENV_DISABLED": "1", "HONCHO_CONFIG_TOML_DISABLED": "1"}
    return {**kept, **switches, "DB_CONNECTION_URI": database or nowhere}


def settings(primary: str, backup: str, embedder: str, fallback: str) -> Mapping[str, str]:
    """Return Honcho's settings as its host would write them."""

    def overrides(prefix: str, url: str) -> Iterator[tuple[str, str]]:
        yield f"{prefix}__OVERRIDES__BASE_URL", url
        yield f"{prefix}__OVERRIDES__API_KEY", f"key-for-{prefix}"  # a dead key is dead for all
        yield f"{prefix}__OVERRIDES__PROVIDER_PARAMS", json.dumps({"timeout": TIMEOUT})

    model = "claude-haiku-4-5" if fallback == "anthropic" else "gpt-4.1"
    written = dict(overrides("EMBEDDING_MODEL_CONFIG", embedder))
    for agent in ("DERIVER", "DIALECTIC_LEVELS__low_"):
        name = f"{agent}_MODEL_CONFIG"
        written |= {f"{name}__TRANSPORT": "openai", f"{name}__MODEL": "gpt-4.1-mini"}
        written |= dict(overrides(name, primary))
        name += "__FALLBACK"
        written |= {f"{name}__TRANSPORT": fallback, f"{name}__MODEL": model}
        written |= dict(overrides(name, backup))
    return written


def main() -> None:
    """Run the cases that are wanted, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("honcho", type=Path, help="a checkout")
    parser.add_argument("--python", required=True, help="the Python of its environment")
    parser.add_argument("--database", help="SQLAlchemy's URI of a database for this alone")
    parser.add_argument("--only", default="", help="a part of the cases' names")
    options = parser.parse_args()
    honcho = options.honcho.resolve()
    if options.database:
        migrate = [options.python, "scripts/provision_db.py"]
        environment = inherited(options.database)
        subprocess.run(migrate, cwd=honcho, env=environment, check=True, capture_output=True)
    rows = []
    for (name, case), failure in product(CASES.items(), FAILURES):
        if options.only in f"{name}, {failure}":
            row = [name, failure, *run(case, failure, honcho, options.python, options.database)]
            rows.append(row)
            print(*row, sep=" | ", flush=True)
    print(f"\n{table(HEAD, rows)}")


if __name__ == "__main__":
    main()
