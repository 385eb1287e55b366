"""From a sampled path to an image-grounded question: compose, fuzz, anchor, degrade, screen, audit."""
