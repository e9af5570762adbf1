"""Hostile chat templates: each exceeds a limit or attacks in a different way. And templates of real models."""

from __future__ import annotations

# name -> (template, words of the message); "|" separates alternatives
QUICK: dict[str, tuple[str, str]] = {
    "a text of 10^9 characters": ("{{ 'a' * 10**9 }}", "256 MB"),
    "a list of 10^9 elements": ("{% set x = [1] * 10**9 %}", "256 MB"),
    "a number of 10^9 characters": ("{{ '%1000000000d' % 1 }}", "256 MB"),
    "a formatted width of 10^9": ("{{ '{:1000000000}'.format(1) }}", "256 MB|ValueError"),
    "centered in 10^9 columns": ("{{ 'a' | center(10**9) }}", "256 MB"),
    "justified to 10^9 columns": ("{{ 'a'.ljust(10**9) }}", "256 MB"),
    "filled with 10^9 zeros": ("{{ '1'.zfill(10**9) }}", "256 MB"),
    "tabs of 10^9 columns": ("{{ '\\t'.expandtabs(10**9) }}", "256 MB"),
    "a million lines indented by a million": ("{{ ('a\n' * 10**6) | indent(10**6) }}", "256 MB"),
    "a date of 10^8 parts": ("{{ strftime_now('%c' * 10**8) }}", "256 MB"),
    "doubling a hundred times": (
        "{% set n = namespace(x='a') %}{% for i in range(100) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "256 MB",
    ),
    "doubling by joining": ("{{ ('a' * 10**5) | list | join('a' * 10**5) }}", "256 MB"),
    "a list of itself": ("{% set x = (range(99999) | list) * 10**5 %}", "256 MB"),
    "2 MB of text in small pieces": ("{% for i in range(99999) %}{{ 'a' * 20 }}{% endfor %}", "1,000,000 bytes"),
    "2 MB of text in one piece": ("{{ 'a' * 2000000 }}", "1,000,000 bytes"),
    "400,000 Korean characters": ("{{ '가' * 400000 }}", "1,000,000 bytes"),
    "2 MB of JSON": ("{{ (range(99999) | list * 4) | tojson(indent=4) }}", "1,000,000 bytes"),
    "a range of 10^9": ("{% for i in range(10**9) %}{% endfor %}", "OverflowError: Range too big"),
    "a macro that calls itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    "5,000 brackets": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "RecursionError"),
    "3,000 nested conditions": ("{% if 1 %}" * 3000 + "{% endif %}" * 3000, "RecursionError|nested"),
    "the class of a text": ("{{ ''.__class__.__mro__ }}", "unsafe"),
    "the globals of a function": ("{{ raise_exception.__globals__.keys() }}", "unsafe"),
    "format of an attribute": ("{{ '{0.__class__.__mro__}'.format(1) }}", "unsafe"),
    "a changed conversation": ("{{ messages.append(1) }}", "unsafe"),
    "another file": ("{% include '/etc/passwd' %}", "no loader"),
    "an import of a file": ("{% import '/etc/passwd' as x %}{{ x }}", "no loader"),
    "an error of a megabyte": ("{{ raise_exception('x' * 10**6) }}", "rejects this conversation: xxx"),
    "a codec that opens a file": ("{{ 'a'.encode('punycode') }}", "fails with|rejects"),
    "unfinished": ("{% if %}", "rejects this conversation"),
    "nested ranges": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "2 seconds"),
}

SLOW: dict[str, tuple[str, str]] = {
    "doubling by replacement": (
        "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x.replace('a', 'aa') %}{% endfor %}",
        "256 MB|seconds",
    ),
    "a million operators": ("{{ 1" + "+1" * 10**5 + " }}", "RecursionError|seconds|MB"),
    "a power of 10^8 digits": ("{{ 10 ** (10**8) }}", "2 seconds"),
    "a product of large numbers": ("{% set x = (7 ** (10**6)) ** 400 %}", "2 seconds|MB"),
    "sorting 5 million elements": (
        "{% set n = namespace(x=range(99999) | list) %}{% for i in range(50) %}"
        "{% set n.x = n.x | sort(reverse=true) | reverse | list + [i] %}{% endfor %}"
        "{% for i in range(99) %}{% set y = (n.x * 20) | sort %}{% endfor %}",
        "2 seconds|MB",
    ),
    "groups of a long list": (
        "{% for i in range(9999) %}{{ range(99999) | groupby('real') | length }}{% endfor %}",
        "2 seconds|MB",
    ),
    "a search in a long text": (
        "{% set x = 'a' * 10**6 %}{% for i in range(99999) %}{{ x.count('ab') }}{{ x.upper() | length }}{% endfor %}",
        "2 seconds",
    ),
    "wrapped words": ("{{ ('a ' * 10**7) | wordwrap(1) | length }}", "2 seconds|MB"),
    "links in a long text": ("{{ ('http://a.b ' * 10**6) | urlize | length }}", "2 seconds|MB"),
    "unique elements of unequal lists": (
        "{% for i in range(99999) %}{{ range(99999) | unique | list | length }}{% endfor %}",
        "2 seconds|MB",
    ),
    "an endless cycle of calls": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "2 seconds",
    ),
    "a template of nine megabytes": ("{{ messages }}{% set a = 1 %}" * 300_000, "2 seconds|MB"),
}

# The templates of models, as published with them.
REAL = {
    "ChatML": (
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
        "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "Llama 3": (
        "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
        "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}"
        "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
        "{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "Mistral": (
        "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
        "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
        "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
        "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
    ),
    "Zephyr": (
        "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + "
        "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n"
        "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n"
        "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
    ),
    "Gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + "
        "message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{'<start_of_turn>model\n'}}{% endif %}"
    ),
    "Qwen 2.5, without tools": (
        "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- for tool in tools %}\n        "
        '{{- "\\n" }}\n        {{- tool | tojson }}\n    {%- endfor %}\n{%- else %}\n    '
        "{%- if messages[0]['role'] == 'system' %}\n        {{- '<|im_start|>system\\n' + messages[0]['content'] + "
        "'<|im_end|>\\n' }}\n    {%- else %}\n        {{- '<|im_start|>system\\nYou are Qwen, created by Alibaba "
        "Cloud. You are a helpful assistant.<|im_end|>\\n' }}\n    {%- endif %}\n{%- endif %}\n"
        "{%- for message in messages %}\n"
        '    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == '
        "\"assistant\" and not message.tool_calls) %}\n        {{- '<|im_start|>' + message.role + '\\n' + "
        "message.content + '<|im_end|>' + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    "a date and a namespace": (
        "{%- set ns = namespace(seen=false) -%}{%- if not date_string is defined %}{%- set date_string = "
        "strftime_now('%d %b %Y') %}{%- endif %}Today Date: {{ date_string }}\n{% for m in messages %}"
        "{% set ns.seen = true %}{{ m.content | upper | replace('A', 'b') }}{% endfor %}{{ ns.seen }}"
    ),
}
