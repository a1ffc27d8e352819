"""A prompt's KV cache outlives the engine that computed it, and the agent that kept it.

    python examples/01-warm-restart/demo.py

Starts an agent with a host tier and a disk tier in temporary folders, and a small Llama of the
transformers library in a process of its own. The same prompt is answered three times: cold; warm
from the agent's memory; and warm from disk, after agent and model process were both restarted.
Needs no root, no cluster, no GPU and no network, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from typing import Any, Final

from attention import Attention, Interrupted
from children import Child, ChildFailed
from places import NoPlace
from report import COLUMNS, Model, Run, last_line, problems, row
from screen import Screen
from stage import END_S, Options, Stage

from onggi_core.quantity import QuantityError

EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130
TOKENS_MIN: Final = 100
"""One full block, and a tail behind it."""


def main() -> int:
    options = _options()
    screen = Screen()
    try:
        with Attention() as attention, ExitStack() as stack:
            stage = Stage(options, stack, attention)
            wrong = _tell(stage, screen, options)
    except Interrupted:
        print("demo: interrupted, nothing is left behind")
        return EXIT_INTERRUPTED
    except (ChildFailed, NoPlace, QuantityError) as failed:
        first, *more = str(failed).splitlines()
        for line in more:
            screen.say(f"  | {line}")
        wrong = [first]
    if wrong:
        print(f"demo: failed {'; '.join(wrong)}")
        return EXIT_FAILED
    return 0


def _tell(stage: Stage, screen: Screen, options: Options) -> list[str]:
    """The story, from start to table; what went wrong in it."""
    if stage.places.note:
        screen.say(f"note: {stage.places.note}")
    screen.say(f"agent: host tier {options.memory} in {stage.places.memory}")
    screen.say(f"       disk tier {options.disk} in {stage.places.disk}")
    agent, engine, model = _start_both(stage, screen, "starting agent and model process")
    screen.say(
        f"model: Llama, {model.parameters / 1e6:.0f} M random parameters, {options.layers} layers; "
        f"prompt: {model.prompt_tokens:,} tokens"
    )
    with screen.step("run 1, cold: computing the prompt, then storing it") as step:
        cold = stage.answer(engine, "cold", step)
    with screen.step("run 2: the same prompt, warm from host memory") as step:
        host = stage.answer(engine, "host", step)
    with screen.step("agent writes the last blocks to disk"):
        stage.wait_for_agent(agent, _all_on_disk, "all blocks on disk")
    with screen.step("killing the model process, ending the agent"):
        engine.kill()
        agent.stop(END_S)
    _, engine, _ = _start_both(stage, screen, "starting both again, with an empty host tier")
    with screen.step("run 3: the same prompt, warm from disk") as step:
        disk = stage.answer(engine, "disk", step)
    return _conclude(screen, model, cold, host, disk)


def _start_both(stage: Stage, screen: Screen, title: str) -> tuple[Child, Child, Model]:
    with screen.step(title):
        agent, engine = stage.start_agent(), stage.start_engine()
        stage.wait_for_agent(agent, _all_touched, "its memory ready")
        return agent, engine, stage.wait_for_engine(engine)


def _all_touched(stats: dict[str, Any]) -> bool:
    return bool(stats["arena_ready_bytes"] >= stats["arena_bytes"])


def _all_on_disk(stats: dict[str, Any]) -> bool:
    return not stats["dirty_blocks"] and not stats["writes_in_flight"]


def _conclude(screen: Screen, model: Model, cold: Run, host: Run, disk: Run) -> list[str]:
    screen.table(COLUMNS, [row(run, cold, model) for run in (cold, host, disk)])
    wrong = problems(cold, host, disk, model)
    if not wrong:
        said = " ".join(str(token) for token in cold.tokens)
        screen.say(f"All three runs said {said}")
        screen.say("and their logits after the prompt are equal bit for bit.")
        print(last_line(cold, host, disk))
    return wrong


def _options() -> Options:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=5000, help="of the prompt")
    parser.add_argument("--layers", type=int, default=8, help="of the model")
    parser.add_argument("--memory", default="1GiB", help="host tier of the agent")
    parser.add_argument("--disk", default="4GiB", help="disk tier of the agent")
    given = parser.parse_args()
    if given.tokens < TOKENS_MIN or given.layers < 1:
        parser.error(f"use at least {TOKENS_MIN} tokens and 1 layer")
    return Options(given.tokens, given.layers, given.memory, given.disk)


if __name__ == "__main__":
    sys.exit(main())
