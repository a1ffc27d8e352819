"""Stock models of transformers with a context that does not fit on the device.

    from onggi import OnggiCache
    model.set_attn_implementation("onggi")
    with OnggiCache(model.config, device_bytes=2**28, memory=2**32) as cache:
        model.generate(**inputs, past_key_values=cache)

Lives here: cache.py (OnggiCache), attention.py and masks.py (the attention function and the masks
that go with its name), handle.py (what stands for keys and values between the two), saved.py. May
import: transformers, torch, context/. Importing this registers "onggi" with transformers, since a
model has to know the name before there is a cache.
"""

from onggi_library.transformers.attention import register
from onggi_library.transformers.cache import OnggiCache

register()

__all__ = ["OnggiCache"]
