"""The texts of ``jumok demo`` in English and Korean."""

from __future__ import annotations

from dataclasses import dataclass

#: The sentences that the demo translates; the attention of the first one is drawn.
SENTENCES = (
    "나는 매일 학교에 간다",
    "고양이는 어제 부엌에서 잤다",
    "너는 어디에서 꽃을 샀니?",
    "My mother drinks coffee at home every morning",
    "The students didn't read the newspaper last week",
    "Will you come to Seoul tomorrow?",
)


@dataclass(frozen=True)
class DemoTexts:
    """What the demo prints, in one language; texts with braces are filled in by the command.

    Attributes:
        translate: The heading of the first part.
        translator: What the translator is and is not.
        attention: The heading of the second part.
        train: The heading of the third part.
        prompt: How the line of the GPT begins.
        line: Introduces the line that the GPT writes.
        look: The heading of the fourth part.
        looked: Introduces what the last letter attends to.
        without_head: Introduces the line that the GPT writes without the most important head.
        page: What to do with the HTML file.
        own_sentence: A sentence for the first of the next commands.
    """

    translate: str
    translator: str
    attention: str
    attention_map: str
    train: str
    trained: str
    prompt: str
    line: str
    look: str
    looked: str
    metric: str
    head_effect: str
    without_head: str
    pictures: str
    page: str
    next: str
    own_sentence: str


ENGLISH = DemoTexts(
    translate="1. One small Transformer translates in both directions",
    translator="{parameters:,} parameters, trained on generated sentences of about 400 words in each language.\n"
    "It knows only these words and the patterns of these sentences.",
    attention="2. Where the translator looks while it writes",
    attention_map="Each row is a written token, each column a token it read; the mean of the {heads} heads of {site}.",
    train="3. Train a GPT on {sentences:,} sentences, letter by letter ({steps:,} steps)",
    trained="{parameters:,} parameters; loss {loss:.2f} on sentences that it did not read.",
    prompt="My mother ",
    line="It writes:",
    look="4. Which of its heads matters?",
    looked="At the last letter, layer {layer} head {head} attends most to:",
    metric="Mean log-probability of a letter of this line: {clean:.2f}",
    head_effect="without layer {layer} head {head}: {effect:+.2f}",
    without_head="Without layer {layer} head {head} it writes:",
    pictures="Pictures:",
    page="Open {page} in a browser: it shows every head of the translator on the first sentence.",
    next="Next:",
    own_sentence="I bought flowers at the market yesterday",
)

KOREAN = DemoTexts(
    translate="1. 작은 Transformer 하나가 두 방향으로 번역합니다",
    translator="파라미터 {parameters:,}개, 언어마다 약 400개의 단어로 생성한 문장으로 학습했습니다.\n이 단어와 이 문장 "
    "형식만 압니다.",
    attention="2. 번역하면서 어디를 볼까요?",
    attention_map="행은 쓰고 있는 토큰, 열은 읽은 토큰입니다. {site}의 헤드 {heads}개를 평균했습니다.",
    train="3. 문장 {sentences:,}개로 GPT를 글자 단위로 학습합니다({steps:,}단계)",
    trained="파라미터 {parameters:,}개, 읽지 않은 문장에서의 손실 {loss:.2f}.",
    prompt="어머니는 ",
    line="GPT가 쓴 문장:",
    look="4. 어느 헤드가 중요할까요?",
    looked="마지막 글자에서 레이어 {layer} 헤드 {head}의 가중치가 가장 큰 글자:",
    metric="이 문장의 글자당 평균 로그 확률: {clean:.2f}",
    head_effect="레이어 {layer} 헤드 {head} 제거: {effect:+.2f}",
    without_head="레이어 {layer} 헤드 {head} 없이 쓴 문장:",
    pictures="그림:",
    page="{page} 파일을 브라우저에서 여세요. 첫 문장을 번역하는 번역기의 헤드가 모두 보입니다.",
    next="다음으로 해 볼 명령:",
    own_sentence="나는 어제 시장에서 꽃을 샀다",
)

TEXTS = {"en": ENGLISH, "ko": KOREAN}
