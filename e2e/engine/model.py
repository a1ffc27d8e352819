"""Writes a small language model with random weights, and a tokenizer, to a folder.

Usage: model.py FOLDER. Run with the engine's own Python; the same seed gives the same bytes. Large
enough that a prompt of 1,500 tokens takes a visible time on two cores, small enough that it is
loaded in a moment.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SEED = 20261129
WORDS = 4096
"""Vocabulary: the words w0 to w4093 and two marks; a word is a token."""
LAYERS = 8
HIDDEN = 512
HEADS = 8
POSITIONS = 4096
SPREAD = 0.05
"""Of the weights; with the usual 0.02 a random model says nearly the same whatever it was told."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {f"w{n}": n for n in range(WORDS - 2)} | {"<s>": WORDS - 2, "</s>": WORDS - 1}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", unk_token="w0"
    )
    fast.save_pretrained(folder)
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN * 3,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=POSITIONS,
        initializer_range=SPREAD,
        bos_token_id=WORDS - 2,
        eos_token_id=WORDS - 1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    for file in folder.iterdir():
        file.chmod(0o644)  # a pod reads them as another user


if __name__ == "__main__":
    main(Path(sys.argv[1]))
