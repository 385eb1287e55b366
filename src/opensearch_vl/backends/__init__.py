"""Implementations of the protocols: chat servers, local search, image index, OCR, page readers, upscalers."""
