"""From a MediaWiki dump to tables, a link graph and constrained random walks; and the miniature encyclopedia."""
