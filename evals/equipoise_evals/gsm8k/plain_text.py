r"""The same text in plain characters: one kind of digit, minus, space and quote; no LaTeX, no HTML, no annotations.

Two things of the original survive because they say which number is meant: ``**bold**`` and ``\boxed{…}``.
"""

import html
import re
import unicodedata

_PAIRS = {
    "−": "-", "﹣": "-", "‐": "-", "‑": "-", "➖": "-", "‒": "–", "⁄": "/", "∕": "/", "÷": "÷",
    "。": ". ", "．": ".", "،": ",", "٬": ",", "、": ", ", "٫": ".", "٪": "%", "﹪": "%", "⋅": "*", "·": "*", "∙": "*",
    "✕": "×", "✖": "×", "“": '"', "”": '"', "„": '"', "’": "'", "‘": "'", "≅": "≈", "≃": "≈", "İ": "I",
    "？": "? ", "！": "! ", "；": "; ",
    "\u2028": "\n", "\u2029": "\n", "\u0085": "\n",
}  # fmt: skip
_EMOJI_STYLE = "\ufe0f"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT_RUN = re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")


def plain(text: str) -> str:
    """The text in plain characters, its meaning for a reader of numbers unchanged."""
    if "&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0]), text)
    text = _plain_characters(text)
    if "<<" in text:
        text = _without_annotations(text)
    if "<" in text and ">" in text:
        text = _without_html(text)
    if "\\" in text:
        text = _without_latex(text)
    return _without_markup(text)


def _plain_characters(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\t", " ").replace("\v", "\n").replace("\f", "\n")
    if text.isascii():
        return text
    text = _SUPERSCRIPT_RUN.sub(lambda run: "^" + run[0].translate(_SUPERSCRIPTS), text)
    return text.translate({ord(character): _plain_character(character) for character in set(text)})


def _plain_character(character: str) -> str:
    if character.isascii():
        return character
    if 0xFF01 <= ord(character) <= 0xFF5E and character not in _PAIRS:
        return chr(ord(character) - 0xFEE0)
    return _PAIRS.get(character) or _by_category(character)


def _by_category(character: str) -> str:
    """Any script's digits, spaces and fractions as ASCII; what is invisible or a subscript (CO₂) as nothing."""
    category = unicodedata.category(character)
    if category == "Nd":
        return str(unicodedata.decimal(character))
    if category == "Zs":
        return " "
    if category in ("Cf", "Me") or "₀" <= character <= "₉" or character == _EMOJI_STYLE:
        return ""
    if unicodedata.decomposition(character).startswith("<fraction>"):
        return " " + unicodedata.normalize("NFKC", character).replace("⁄", "/")
    return character


_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});")
_ANNOTATION_WITH_RESULT = re.compile(r"<<[^<>\n]{0,400}>>(?=\s?-?\s?[$€£]?\s?\.?[0-9])")
_ANNOTATION = re.compile(r"<<(?:[^<>=\n]{0,200}=)*([^<>=\n]{0,200})>>")
_CUT_ANNOTATION = re.compile(r"<<[^<>\n]{0,400}\Z")
_ANSWER_TAG = re.compile(r"<(?:final_?)?answer>([^<]{0,400})</(?:final_?)?answer>", re.IGNORECASE)
_DELETED = re.compile(r"<(del|strike)>[^<]{0,200}</\1>", re.IGNORECASE)
_RAISED = re.compile(r"<sup>([0-9]{1,6})</sup>", re.IGNORECASE)
_STRONG = re.compile(r"</?(?:b|strong)>", re.IGNORECASE)
_BREAK = re.compile(r"<(?:br|p|div|li|tr)\s?/?>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z!][^<>\n]{0,200}>")


def _without_annotations(text: str) -> str:
    """GSM8K's ``<<6*14=84>>84`` as ``84``; an annotation that nothing follows leaves its own result."""
    text = _ANNOTATION_WITH_RESULT.sub("", text)
    return _CUT_ANNOTATION.sub("", _ANNOTATION.sub(r"\1", text))


def _without_html(text: str) -> str:
    text = _ANSWER_TAG.sub(r"\n#### \1\n", text)
    text = _DELETED.sub("", text)
    text = _RAISED.sub(r"^\1", text)
    text = _STRONG.sub("**", text)
    text = _BREAK.sub("\n", text)
    return _TAG.sub(" ", text)


_TEXT_COMMAND = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt)?|math(?:rm|bf|it|sf)|mbox|emph|operatorname|underline)\s?\{([^{}\n]{0,200})\}"
)
_FRACTION = re.compile(r"([0-9]\s?)?\\[dtc]?frac\s?(?:\{([^{}\n]{1,80})\}\s?\{([^{}\n]{1,80})\}|([0-9])([0-9]))")
_COMMAND = re.compile(r"\\([a-zA-Z]{1,20}|.|\n)")
_CANCELLED = re.compile(r"\\(?:x?cancel|sout|st)\s?\{[^{}\n]{0,200}\}")
_REPEATING = re.compile(r"(?<![0-9.])[0-9]{0,20}\.[0-9]{0,20}\\(?:overline|bar|dot)\s?\{?[0-9]{1,20}\}?")
_GROUPING = re.compile(r"\{([,.])\}")
_BRACED_POWER = re.compile(r"\^\s?\{\s?(-?[0-9]{1,9})\s?\}")
_COMMANDS = {
    "$": "$", "%": "%", "#": "#", "&": "&", "_": "_", "{": "{", "}": "}", "-": "-",
    ",": " ", ";": " ", ":": " ", "!": "", " ": " ", "(": " ", ")": " ", "[": "\n", "]": "\n", "\\": "\n", "n": "\n",
    "times": "×", "cdot": "*", "ast": "*", "div": "÷", "approx": "≈", "simeq": "≈", "equiv": "=", "pm": "±",
    "boxed": "\\boxed", "fbox": "\\boxed", "framebox": "\\boxed", "quad": " ", "qquad": " ", "pi": "π", "sqrt": "√",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "lt": "<", "gt": ">", "neq": "≠", "ldots": "…", "dots": "…",
    "circ": "°", "degree": "°", "textdollar": "$", "dollar": "$", "pounds": "£", "euro": "€", "left": "", "right": "",
    "therefore": "Therefore ", "because": " because ", "to": " to ", "newline": "\n", "par": "\n",
}  # fmt: skip


def _without_latex(text: str) -> str:
    text = _GROUPING.sub(r"\1", _REPEATING.sub("…", _CANCELLED.sub("", text)))
    text = _TEXT_COMMAND.sub(r" \1 ", _TEXT_COMMAND.sub(r" \1 ", text))
    text = _FRACTION.sub(_plain_fraction, text)
    text = _COMMAND.sub(lambda command: _COMMANDS.get(command[1], " "), text)
    return _BRACED_POWER.sub(r"^\1", text)


def _plain_fraction(found: re.Match[str]) -> str:
    whole, over, under = found[1], (found[2] or found[4]).strip(), (found[3] or found[5]).strip()
    if over.isdigit() and under.isdigit():
        return f"{whole.strip() + ' ' if whole else ''}{over}/{under}"
    return f"{whole or ''}({over})/({under})"


_HASHES = re.compile(r"#{5,}")
_ARROW = re.compile(r"[=-]{1,2}>")
_BLANK_LINES = re.compile(r"\n{3,}")
_DELETED_TEXT = re.compile(r"~~[^~\n]{1,200}~~")
_FENCE = re.compile(r"^[ ]{0,3}```[^\n`]{0,40}$", re.MULTILINE)
_ITALIC = re.compile(r"(?<![\w*])([*_])(?![\s*_])([^*_\n]{1,60})(?<!\s)\1(?![\w*])")


def _without_markup(text: str) -> str:
    if "~~" in text:
        text = _DELETED_TEXT.sub("", text)
    if "`" in text:
        text = _FENCE.sub("", text).replace("`", "")
    if ">" in text:
        text = _ARROW.sub("→", text)
    if "#####" in text:
        text = _HASHES.sub("####", text)
    return _BLANK_LINES.sub("\n\n", _ITALIC.sub(r"\2", text.replace("__", "**")))
