"""Folders in Hugging Face's layouts (config.json, safetensors, tokeniser files), mapped onto Seqloom's own blocks.

`LAYOUTS` is the one list of layouts. A folder is read by the layout that has its `model_type`; a model is written by
the first layout that fits it.
"""

from seqloom.hub.huggingface.bart import BartLayout
from seqloom.hub.huggingface.bert import BertLayout
from seqloom.hub.huggingface.gpt import Gpt2Layout, NeoxLayout
from seqloom.hub.huggingface.layout import Layout
from seqloom.hub.huggingface.llama import LlamaLayout
from seqloom.hub.huggingface.t5 import T5Layout

LAYOUTS: list[Layout] = [
    T5Layout(),
    BartLayout(),
    LlamaLayout(),
    NeoxLayout(),
    Gpt2Layout(),
    BertLayout(),
]
