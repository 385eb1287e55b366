"""The tools an agent may call, and the toolbox that validates, times and types every call."""
