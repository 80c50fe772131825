"""Texts of a megabyte that are hard on a grader: one pattern over and over, alone, after an answer, before one.

``python -m tests.support.megabytes`` prints how long each takes; ``make bench-grade`` keeps what it prints.
"""

import platform
import time

from equipoise_evals.gsm8k.grade import grade

MEGABYTE = 1_000_000

PATTERNS = [
    "9", "\u0661", "1,", "1.", "1/", "1 ", "100 ", "-", "\u2212", "-1", "(", "{", "\\boxed{", "\\frac{1}{", "\\text{",
    "\\", "<", "<<", "<<1=", "<|", "<|im_", "<a ", "<answer>5</answer>", "<think>", "<think></think>", "[THINK]", "#",
    "####", "#### ", "#### 1\n", "\n#", "\n", " ", "\u3000", "\u2028", "\u200b", "\ud800", "\r", ". ", " .", "? ",
    "the answer is ", "the answer is 5 or ", "Answer: 5\n", "\na:", "\nQuestion", "\nQ", "答案是5", "=", "1=", "1 + ",
    "$1", "5%", "½", "²", "10^", "1e9", "**", "_a_", "~~", "`", "&#1;", "one hundred and ", "5/5/2020 ", "95% sure ",
    "jan 5 2020 ", "\n- ", "\n1. ", "how many ?", "wait ", "a",
]  # fmt: skip


def megabytes(pattern: str) -> tuple[str, str, str]:
    """Three texts of a megabyte."""
    body = (pattern * (MEGABYTE // len(pattern) + 1))[:MEGABYTE]
    return body, ("#### 42 " + body)[:MEGABYTE], body[: MEGABYTE - 9] + "\n#### 42 "


def cpu_ms(output: str, tries: int = 5) -> float:
    """Least CPU time of a grade, in milliseconds."""

    def once() -> float:
        begin = time.process_time()
        grade(output, "42")
        return 1_000 * (time.process_time() - begin)

    return min(once() for _ in range(tries))


if __name__ == "__main__":
    times = sorted(
        ((cpu_ms(text), ascii(pattern)) for pattern in PATTERNS for text in megabytes(pattern)), reverse=True
    )
    print(f"{len(times)} texts of 1 MB, best of 5, CPU ms; {platform.python_version()}, {platform.machine()}")
    print(f"worst {times[0][0]:.1f}, median {times[len(times) // 2][0]:.1f}; the limit is 50")
    for milliseconds, pattern in times[:10]:
        print(f"{milliseconds:6.1f}  {pattern}")
