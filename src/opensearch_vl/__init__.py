"""OpenSearch-VL: build, train and evaluate multimodal deep-search agents."""

__version__ = "0.1.0"
