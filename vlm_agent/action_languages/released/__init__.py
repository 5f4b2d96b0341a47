"""Languages of released phone agents, as their authors' code reads and writes them.

| module       | form of the action            | languages                                                         |
|--------------|-------------------------------|-------------------------------------------------------------------|
| `tool_calls` | JSON tool call between tags   | qwen25_mobile_use, qwen3_mobile_use, gui_owl, gui_owl15, mai_ui   |
| `calls`      | name(key=value, …)            | ui_tars, ui_tars15, scalecua, aguvis, autoglm, ui_venus, cogagent |
| `objects`    | one JSON object or dictionary | agentcpm, os_genesis, showui, seeclick                            |
| `lines`      | a word and what it acts on    | os_atlas, odyssey_agent                                           |

Points are x first. A number is the nearest unit, halves up; one at most one unit beyond the edge counts as the edge.
Only the action is written, without the thoughts that agents put before it; reading skips them. None of the languages
defines `ending`, so that decoding in them is unconstrained.
"""
