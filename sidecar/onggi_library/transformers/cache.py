"""OnggiCache: a transformers cache whose keys and values lie in tiers."""

from __future__ import annotations

import os
from typing import Any, Final

from transformers import Cache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin

from onggi.arguments import named
from onggi_library import own_tiers
from onggi_library.context.attention_map import AttentionMap
from onggi_library.context.context import BLOCK_TOKENS, TieredContext
from onggi_library.context.report import Report, Tiers
from onggi_library.in_process import InProcessAgent
from onggi_library.manager.sizes import asked
from onggi_library.rounding import EXACT
from onggi_library.transformers.handle import FOLLOW, Handle, had
from onggi_library.transformers.identity import common, model_fields

LAYER_TYPES: Final = ("full_attention", "sliding_attention", "chunked_attention")
"""Of which attention is a rule over positions and nothing else is kept."""


class OnggiLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer: hands keys and values to the context, and a handle to the model."""

    is_sliding = False  # all of it is kept; the mask says what is seen
    is_croppable = True
    supports_early_init = False

    def __init__(self, context: TieredContext, number: int) -> None:
        super().__init__()
        self._context = context
        self._number = number

    def lazy_initialization(self, key_states: Any, value_states: Any) -> None:
        """Nothing is made ahead."""

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        self._context.append(self._number, key_states, value_states)
        handle = Handle(self._context, self._number)
        return handle, handle

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Raises ValueError where nothing is fed: of a prompt that is not longer than what the
        cache has, `generate` leaves nothing."""
        there = self.get_seq_length()
        if not query_length:
            raise ValueError(f"{had(there)}, and nothing behind them is fed: {FOLLOW}")
        return there + query_length, 0

    def get_seq_length(self) -> int:
        return self._context.length(self._number)

    def get_max_length(self) -> int:
        return -1


class OnggiCache(Cache):  # type: ignore[misc]
    """For `generate(past_key_values=...)` and forward passes of models with the attention
    implementation "onggi". Close it, or use it in a `with`: its tiers are memory and disk."""

    @named
    def __init__(
        self,
        config: Any,
        *,
        device_bytes: int | str,
        socket: str | os.PathLike[str] | None = None,
        memory: int | str = 0,
        disk: int | str = 0,
        disk_path: str | os.PathLike[str] | None = None,
        sinks: int = 128,
        recent: int = 1024,
        block_tokens: int = BLOCK_TOKENS,
        epsilon: float = 0.0,
        lower: str = EXACT,
        label: str = "",
        model: str = "",
        learned: AttentionMap | None = None,
    ) -> None:
        """config: the model's. device_bytes: most that keys and values may take of the device,
        in bytes or as "1GiB".

        socket: of an agent that runs; None for one in this process with `memory` bytes of host
        memory (or "1GiB") and `disk` bytes in the folder disk_path. model: which weights these
        are, for `save` and `restore`; the name in the configuration if empty. The rest: see
        TieredContext. Raises TypeError and ValueError, also for a model whose layers keep other
        things than keys and values, and what the agent's start raises.
        """
        if not isinstance(config, PreTrainedConfig):
            raise TypeError(
                f"config is a {type(config).__name__}; hand in the model's model.config"
            )
        text = config.get_text_config(decoder=True)
        count = _layers_of(text)
        self._config, self._model = config, model
        self._agent: InProcessAgent | None = None
        if socket is None:
            self._agent = _agent(memory, disk, disk_path)
        else:
            _no_agent_of_its_own(memory=memory, disk=disk, disk_path=disk_path)
        try:
            self.context = TieredContext(
                self._agent.socket if self._agent else socket or "",
                layers=count,
                device_bytes=device_bytes,
                sinks=sinks,
                recent=recent,
                block_tokens=block_tokens,
                epsilon=epsilon,
                lower=lower,
                label=label,
                learned=learned,
            )
        except BaseException:
            if self._agent is not None:
                self._agent.close()
            raise
        super().__init__(layers=[OnggiLayer(self.context, number) for number in range(count)])

    def report(self) -> Report:
        """What is where, and what it cost."""
        return self.context.report()

    def tiers(self) -> Tiers:
        """What lies below the device. Raises ValueError while there is nothing, ContextLost."""
        return self.context.tiers()

    # ---- under a name

    def save(self, name: str, input_ids: Any) -> None:
        """Keep what the cache has, under a name, for this and other processes with the same agent
        or disk, where it is when this returns. input_ids: [batch, tokens] of the prompt, without
        padding, with whatever was generated; at least as many as the cache has. Raises ValueError,
        NoRoom, ContextLost, and NotInTime where the disk hangs."""
        length = self.context.length()
        if input_ids.dim() != 2 or input_ids.shape[1] < length:
            raise ValueError(
                f"input_ids is {tuple(input_ids.shape)}; the cache has {length} tokens: hand in "
                "the ids of all of them"
            )
        tokens = input_ids[:, :length].tolist()
        self.context.save(name, tokens, model_fields(self._config, self._model))
        if self._agent is not None:
            self.context.wait_until_written()

    def restore(self, name: str, input_ids: Any, device: Any = None) -> int:
        """Take what was saved under this name as far as input_ids begins with it, into this empty
        cache; how many tokens. `generate` then computes the rest of the prompt, of which at least
        one token is left. device: of the model, input_ids' own if None. 0: nothing fits. Raises
        ValueError for another model's, ContextLost if its blocks are gone."""
        saved = self.context.find(name)
        if saved is None:
            return 0
        saved.check(model_fields(self._config, self._model), self.context.layers)
        rows = input_ids.tolist()
        if len(saved.tokens) == 1:
            saved = saved.for_rows(len(rows))
        if len(saved.tokens) != len(rows):
            raise ValueError(
                f"input_ids has {len(rows)} sequences; {name!r} has {len(saved.tokens)}: "
                "hand in as many"
            )
        fits: int = min(common(saved.tokens, rows), input_ids.shape[1] - 1)
        if fits > 0:
            self.context.restore(saved, input_ids.device if device is None else device)
            self.context.crop(fits)
        return max(0, fits)

    # ---- what generate asks of a cache

    def reset(self) -> None:
        self.context.reset()

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens: -n removes n. A positive number is refused, as transformers
        does: it once meant the length to keep."""
        if tokens_to_remove > 0:
            raise ValueError(
                f"tokens_to_remove is {tokens_to_remove}; write -{tokens_to_remove} to remove so "
                "many"
            )
        if tokens_to_remove < 0 and self.context.batch:
            self.context.crop(max(0, self.context.length() + tokens_to_remove))

    def reorder_cache(self, beam_idx: Any) -> None:
        self.context.reorder(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        rows = range(self.context.batch)
        self.context.reorder([row for row in rows for _ in range(repeats)])

    def batch_select_indices(self, indices: Any) -> None:
        """indices: numbers, or a bool for each sequence."""
        if indices.dtype.is_floating_point or indices.dim() != 1:
            raise ValueError(f"indices is {indices.dtype} of {tuple(indices.shape)}; use numbers")
        chosen = indices.nonzero().flatten() if str(indices.dtype) == "torch.bool" else indices
        self.context.reorder(chosen.tolist())

    # ---- its end

    def close(self) -> None:
        """Give back the device, and what the tiers had of it; an agent of its own ends."""
        self.context.close()
        if self._agent is not None:
            self._agent.close()

    def __enter__(self) -> OnggiCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _layers_of(text: Any) -> int:
    kinds = getattr(text, "layer_types", None) or []
    others = sorted(set(kinds) - set(LAYER_TYPES))
    if others:
        raise ValueError(
            f"{text.model_type} has layers of {', '.join(others)}; an OnggiCache is for models all "
            f"of whose layers are {', '.join(LAYER_TYPES)}"
        )
    if latent := getattr(text, "kv_lora_rank", None):
        raise ValueError(
            f"{text.model_type} keeps {latent} numbers a token and makes keys of them itself; an "
            "OnggiCache is for models whose attention reads what their cache keeps"
        )
    if shared := getattr(text, "num_kv_shared_layers", 0):
        raise ValueError(
            f"{text.model_type} has {shared} layers that use other layers' keys and values; an "
            "OnggiCache is for models whose layers have their own"
        )
    return int(text.num_hidden_layers)


def _agent(memory: int | str, disk: int | str, disk_path: Any) -> InProcessAgent:
    host = asked("memory", memory, 1)
    if not host.nbytes:
        raise ValueError(
            f"memory is {memory!r}; give the bytes of host memory to use, or the socket of an "
            "agent that runs"
        )
    settings = own_tiers.host_memory(host)
    there = asked("disk", disk, 1)
    if disk_path is None and there.nbytes:
        raise there.wrong("name a folder for it: disk_path")
    if disk_path is not None:
        path, said = own_tiers.path_of("disk_path", disk_path), os.fsdecode(disk_path)
        nbytes = own_tiers.disk_bytes(there, "disk_path", said, path)
        own_tiers.usable("disk_path", said, path)
        settings |= {"disk": nbytes, "disk_path": path}
    return InProcessAgent(policy="lru", **settings)


def _no_agent_of_its_own(**own: Any) -> None:
    for name, value in own.items():
        if value not in (0, None):
            raise ValueError(f"{name} is {value!r}; the agent at socket has its own: leave it out")
