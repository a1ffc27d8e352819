"""What speculative decoding means for blocks: the layers of a model that drafts lie in the same
pages as those of the model it drafts for, and are written after the forward pass of that one."""

from __future__ import annotations

from typing import Any


def drafter(vllm_config: Any) -> Any:
    """vLLM's configuration of speculative decoding, if what drafts has keys and values of its own,
    unlike a look into the prompt; else None."""
    speculative = _speculative(vllm_config)
    return speculative if speculative is not None and speculative.uses_draft_kv_cache() else None


def looks_ahead(vllm_config: Any) -> bool:
    """Whether the last block of a hit is to be computed: what an EAGLE or MTP head keeps of the
    last token of a block was made with the token behind it, which the block's name does not say.
    The engine leaves out the last block of its own hits for the same reason."""
    speculative = _speculative(vllm_config)
    return speculative is not None and bool(speculative.use_eagle_block_drop())


def saves_unasked(vllm_config: Any, *, last_of_pipeline: bool) -> bool:
    """Whether this rank is never told to save in a step with a forward pass. With speculative
    decoding vLLM says it after the drafts, and of a pipeline only the last rank drafts."""
    return _speculative(vllm_config) is not None and not last_of_pipeline


def _speculative(vllm_config: Any) -> Any:
    return getattr(vllm_config, "speculative_config", None)
