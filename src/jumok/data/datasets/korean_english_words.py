"""The words of the generated Korean-English sentences: subjects, locations, times, objects, verbs and adjectives.

Every word has one translation, so that a sentence has one correct translation in both directions. Inflected forms are
derived in ``korean_english_sentences``; only irregular forms are written here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Person = Literal["I", "you", "singular", "plural"]  # the English agreement: "we" and "they" are plural
Tense = Literal["present", "past", "future"]


@dataclass(frozen=True)
class Subject:
    """Who acts.

    Attributes:
        korean: The words without a particle; "|" separates the pieces that become tokens.
        english: The words at the beginning of a sentence.
    """

    korean: str
    english: str
    person: Person


@dataclass(frozen=True)
class Place:
    """Where something happens, or where someone goes.

    Attributes:
        at: The English phrase for being there.
        to: The English phrase for going there.
    """

    korean: str
    at: str
    to: str


@dataclass(frozen=True)
class Time:
    """When something happens.

    Attributes:
        english: The words at the end of a sentence.
    """

    korean: str
    english: str
    tenses: tuple[Tense, ...]


@dataclass(frozen=True)
class Noun:
    """A thing or a person as an object."""

    korean: str
    english: str


@dataclass(frozen=True)
class Verb:
    """What someone does.

    Attributes:
        stem: The Korean stem, as before "-지".
        past_stem: The stem of the Korean past, as before "-다".
        english: The English base form, with its preposition: "wait for".
        past: The English past form; "" = regular.
        future: The Korean future form, where it is irregular; "" = regular.
        is_state: Whether the place is where someone is ("live in Seoul"), not where someone goes.
    """

    stem: str
    past_stem: str
    english: str
    past: str = ""
    objects: tuple[str, ...] = ()
    locations: tuple[str, ...] = ("anywhere",)
    particle: str = "에서"
    future: str = ""
    is_state: bool = False


@dataclass(frozen=True)
class Adjective:
    """What someone or something is like.

    Attributes:
        stem: The Korean stem, as before "-지".
        past_stem: The stem of the Korean past, as before "-다".
    """

    stem: str
    past_stem: str
    english: str


def _split_rows(table: str) -> list[list[str]]:
    """Return the cells of a table: rows are separated by ";", cells by ",", and "." is an empty cell."""
    rows = [[cell.strip() for cell in row.split(",")] for row in table.split(";") if row.strip()]
    return [["" if cell == "." else cell for cell in row] for row in rows]


PRONOUNS = [
    Subject("나", "I", "I"), Subject("너", "You", "you"), Subject("우리", "We", "plural"),
    Subject("그", "He", "singular"), Subject("그녀", "She", "singular"), Subject("그|들", "They", "plural"),
]  # fmt: skip

NAMES = [
    Subject(korean, english, "singular")
    for korean, english in _split_rows("민수, Minsu; 지은, Jieun; 서연, Seoyeon; 준호, Junho; 유진, Yujin; 하준, Hajun")
]

FAMILY = [
    Subject(korean, f"My {english}", "singular")
    for korean, english in _split_rows(
        "어머니, mother; 아버지, father; 할머니, grandmother; 할아버지, grandfather; 삼촌, uncle; 이모, aunt; "
        "내 친구, friend; 내 이웃, neighbor"
    )
]

#: Occupations, with the English plural.
OCCUPATIONS = _split_rows(
    "학생, student, students; 선생님, teacher, teachers; 의사, doctor, doctors; 간호사, nurse, nurses; "
    "농부, farmer, farmers; 요리사, cook, cooks; 가수, singer, singers; 군인, soldier, soldiers; "
    "작가, writer, writers; 화가, painter, painters; 경찰관, police officer, police officers; "
    "변호사, lawyer, lawyers; 배우, actor, actors; 기자, reporter, reporters; 과학자, scientist, scientists; "
    "회사원, office worker, office workers"
)

PEOPLE = [
    *(Subject(korean, f"The {english}", "singular") for korean, english, _ in OCCUPATIONS),
    *(Subject(f"{korean}|들", f"The {plural}", "plural") for korean, _, plural in OCCUPATIONS[:8]),
    Subject("아이", "The child", "singular"), Subject("아이|들", "The children", "plural"),
    Subject("남자", "The man", "singular"), Subject("여자", "The woman", "singular"),
    Subject("소년", "The boy", "singular"), Subject("소녀", "The girl", "singular"),
]  # fmt: skip

#: Animals, which do only what needs no object.
ANIMALS = [
    Subject(korean, f"The {english}", "singular")
    for korean, english in _split_rows("고양이, cat; 개, dog; 새, bird; 말, horse; 토끼, rabbit; 소, cow")
]


def _list_places(table: str) -> list[Place]:
    locations = []
    for korean, preposition, english in _split_rows(table):
        to = english if english == "home" else f"to {english}"
        locations.append(Place(korean, f"{preposition} {english}", to))
    return locations


#: Places by group; a verb names the groups where it happens.
PLACES = {
    "home": _list_places("집, at, home; 부엌, in, the kitchen; 방, in, the room; 정원, in, the garden"),
    "learning": _list_places(
        "학교, at, school; 도서관, at, the library; 교실, in, the classroom; 대학교, at, the university; "
        "박물관, at, the museum"
    ),
    "eating": _list_places("식당, at, the restaurant; 카페, at, the cafe; 호텔, at, the hotel"),
    "shopping": _list_places(
        "시장, at, the market; 가게, at, the store; 서점, at, the bookstore; 빵집, at, the bakery; "
        "백화점, at, the department store"
    ),
    "working": _list_places(
        "병원, at, the hospital; 은행, at, the bank; 사무실, at, the office; 공장, at, the factory; "
        "우체국, at, the post office"
    ),
    "travel": _list_places("공항, at, the airport; 역, at, the station; 버스 정류장, at, the bus stop"),
    "outdoors": _list_places(
        "공원, in, the park; 산, in, the mountains; 마을, in, the village; 체육관, at, the gym; "
        "운동장, on, the playground"
    ),
    "water": _list_places("해변, at, the beach; 수영장, at, the pool; 강, in, the river; 바다, in, the sea"),
    "cities": _list_places("서울, in, Seoul; 부산, in, Busan; 제주도, in, Jeju; 런던, in, London; 파리, in, Paris"),
}
PLACES["anywhere"] = [location for locations in list(PLACES.values()) for location in locations]

_DAYS = _split_rows(
    "월요일, Monday; 화요일, Tuesday; 수요일, Wednesday; 목요일, Thursday; 금요일, Friday; 토요일, Saturday; "
    "일요일, Sunday"
)

TIMES = [
    Time("오늘", "today", ("present", "past", "future")),
    *(
        Time(korean, english, ("present",))
        for korean, english in _split_rows(
            "매일, every day; 매주, every week; 아침|마다, every morning; 저녁|마다, every evening; "
            "밤|마다, every night; 주말|마다, every weekend; 여름|마다, every summer; 겨울|마다, every winter"
        )
    ),
    *(Time(f"{korean}|마다", f"every {english}", ("present",)) for korean, english in _DAYS),
    *(Time(f"{korean}|에", f"on {english}", ("past", "future")) for korean, english in _DAYS),
    *(
        Time(korean, english, ("past",))
        for korean, english in _split_rows(
            "어제, yesterday; 지난주|에, last week; 어젯밤|에, last night; 작년|에, last year; 지난달|에, last month; "
            "오늘 아침|에, this morning; 지난여름|에, last summer"
        )
    ),
    *(
        Time(korean, english, ("future",))
        for korean, english in _split_rows(
            "내일, tomorrow; 다음 주|에, next week; 오늘 밤|에, tonight; 내년|에, next year; 다음 달|에, next month; "
            "곧, soon; 이번 주말|에, this weekend"
        )
    ),
]  # fmt: skip

#: Adverbs before the English verb.
ADVERBS = _split_rows("항상, always; 자주, often; 보통, usually; 가끔, sometimes")


def _list_nouns(table: str) -> list[Noun]:
    return [Noun(korean, english) for korean, english in _split_rows(table)]


#: Objects by group; a verb names the groups that it goes with.
OBJECTS = {
    "fruit": _list_nouns("사과, an apple; 바나나, a banana; 오렌지, an orange; 토마토, a tomato; 달걀, an egg"),
    "food": _list_nouns(
        "밥, rice; 빵, bread; 고기, meat; 김치, kimchi; 국수, noodles; 생선, fish; 케이크, cake; 샐러드, salad; "
        "수프, soup; 치즈, cheese; 감자, potatoes"
    ),
    "meals": _list_nouns("아침, breakfast; 점심, lunch; 저녁, dinner"),
    "drinks": _list_nouns("물, water; 커피, coffee; 차, tea; 우유, milk; 주스, juice; 맥주, beer"),
    "texts": _list_nouns("책, a book; 편지, a letter; 소설, a novel; 시, a poem; 보고서, a report; 이메일, an email"),
    "periodicals": _list_nouns("신문, the newspaper; 잡지, a magazine"),
    "shows": _list_nouns("영화, a movie; 텔레비전, TV; 뉴스, the news; 경기, the game; 드라마, a drama"),
    "clothes": _list_nouns("셔츠, a shirt; 치마, a skirt; 바지, pants; 코트, a coat; 옷, clothes"),
    "things": _list_nouns(
        "가방, a bag; 우산, an umbrella; 시계, a watch; 모자, a hat; 꽃, flowers; 의자, a chair; 연필, a pencil; "
        "지갑, a wallet; 열쇠, a key; 인형, a doll; 신발, shoes; 선물, a gift; 책상, a desk; 그릇, a bowl"
    ),
    "machines": _list_nouns(
        "컴퓨터, a computer; 전화기, a phone; 자동차, a car; 자전거, a bicycle; 카메라, a camera; 라디오, the radio"
    ),
    "subjects": _list_nouns(
        "영어, English; 한국어, Korean; 수학, math; 역사, history; 과학, science; 미술, art; 중국어, Chinese"
    ),
    "music": _list_nouns("음악, music; 노래, a song"),
    "instruments": _list_nouns("피아노, the piano; 기타, the guitar"),
    "games": _list_nouns("축구, soccer; 야구, baseball; 농구, basketball; 게임, games"),
    "racket games": _list_nouns("테니스, tennis; 탁구, table tennis"),
    "openings": _list_nouns("문, the door; 창문, the window; 상자, the box"),
    "rooms": _list_nouns("방, the room; 부엌, the kitchen; 교실, the classroom; 사무실, the office"),
    "vehicles": _list_nouns("버스, the bus; 기차, the train; 택시, the taxi"),
    "animals": _list_nouns("고양이, a cat; 개, a dog; 새, a bird; 말, a horse; 토끼, a rabbit; 소, a cow"),
    "plants": _list_nouns("나무, a tree; 장미, roses"),
    "people": _list_nouns("친구, a friend; 선생님, the teacher; 의사, the doctor; 학생, the student; 아이, the child"),
    "photos": _list_nouns("사진, a photo"),
    "pictures": _list_nouns("그림, a picture"),
    "homework": _list_nouns("숙제, homework"),
    "housework": _list_nouns("빨래, laundry"),
    "money": _list_nouns("돈, money"),
}

_GOODS = ("fruit", "food", "things", "machines", "clothes")
_SHOPS = ("shopping", "cities")
_STUDY = ("learning", "home", "eating")
_FOOD = ("home", "eating", "learning", "working", "cities")

VERBS = [
    Verb("가", "갔", "go", "went", particle="에"),
    Verb("오", "왔", "come", "came", particle="에"),
    Verb("돌아오", "돌아왔", "return", particle="에"),
    Verb("걸어가", "걸어갔", "walk", particle="에"),
    Verb("살", "살았", "live", locations=("cities",), particle="에", is_state=True),
    Verb("자", "잤", "sleep", "slept", locations=("home", "eating", "learning")),
    Verb("일하", "일했", "work"),
    Verb("놀", "놀았", "play", locations=("home", "outdoors", "cities", "learning")),
    Verb("쉬", "쉬었", "rest"),
    Verb("달리", "달렸", "run", "ran", locations=("outdoors",)),
    Verb("수영하", "수영했", "swim", "swam", locations=("water",)),
    Verb("운동하", "운동했", "exercise", locations=("outdoors", "home")),
    Verb("울", "울었", "cry"),
    Verb("웃", "웃었", "laugh"),
    Verb("춤추", "춤췄", "dance"),
    Verb("노래하", "노래했", "sing", "sang"),
    Verb("먹", "먹었", "eat", "ate", ("fruit", "food", "meals"), _FOOD),
    Verb("마시", "마셨", "drink", "drank", ("drinks",), _FOOD),
    Verb("요리하", "요리했", "cook", "", ("food",), ("home", "eating")),
    Verb("읽", "읽었", "read", "read", ("texts", "periodicals")),
    Verb("쓰", "썼", "write", "wrote", ("texts",)),
    Verb("보", "봤", "watch", "", ("shows",), ("home", "eating", "learning", "cities")),
    Verb("사", "샀", "buy", "bought", (*_GOODS, "drinks", "texts", "periodicals", "plants"), _SHOPS),
    Verb("팔", "팔았", "sell", "sold", (*_GOODS, "drinks", "periodicals"), _SHOPS),
    Verb("만들", "만들었", "make", "made", ("food", "clothes", "things"), ("home", "learning", "working")),
    Verb("배우", "배웠", "learn", "", ("subjects", "instruments", "racket games"), _STUDY),
    Verb("가르치", "가르쳤", "teach", "taught", ("subjects",), _STUDY),
    Verb("공부하", "공부했", "study", "", ("subjects",), _STUDY),
    Verb("만나", "만났", "meet", "met", ("people",)),
    Verb("돕", "도왔", "help", "", ("people",), future="도울"),
    Verb("기다리", "기다렸", "wait for", "waited for", ("people", "vehicles")),
    Verb("청소하", "청소했", "clean", "", ("rooms",), ()),
    Verb("열", "열었", "open", "", ("openings",), ()),
    Verb("닫", "닫았", "close", "", ("openings",), ()),
    Verb("듣", "들었", "listen to", "listened to", ("music",), future="들을"),
    Verb("치", "쳤", "play", "", ("instruments", "racket games"), ("home", "outdoors", "learning")),
    Verb("그리", "그렸", "draw", "drew", ("pictures", "animals", "plants")),
    Verb("사용하", "사용했", "use", "", ("machines",), ("home", "learning", "working")),
    Verb("고치", "고쳤", "fix", "", ("machines",), ("home", "working")),
    Verb("보내", "보냈", "send", "sent", ("texts", "money")),
    Verb("받", "받았", "receive", "", ("texts", "money")),
    Verb("가져오", "가져왔", "bring", "brought", ("drinks", "things", "texts"), ()),
    Verb("입", "입었", "wear", "wore", ("clothes",), ("learning", "working", "home")),
    Verb("잃어버리", "잃어버렸", "lose", "lost", ("things", "money")),
    Verb("심", "심었", "plant", "", ("plants",), ("home", "outdoors")),
    Verb("찍", "찍었", "take", "took", ("photos",)),
    Verb("좋아하", "좋아했", "like", "", ("drinks", "food", "subjects", "games"), ()),
    Verb("사랑하", "사랑했", "love", "", ("people",), ()),
    Verb("하", "했", "do", "did", ("homework", "housework"), ("home", "learning")),
]

ADJECTIVES = [
    Adjective(*row)
    for row in _split_rows(
        "행복하, 행복했, happy; 피곤하, 피곤했, tired; 바쁘, 바빴, busy; 아프, 아팠, sick; 친절하, 친절했, kind; "
        "슬프, 슬펐, sad; 배고프, 배고팠, hungry; 유명하, 유명했, famous; 젊, 젊었, young; 건강하, 건강했, healthy; "
        "똑똑하, 똑똑했, smart; 강하, 강했, strong; 정직하, 정직했, honest; 부지런하, 부지런했, diligent; "
        "조용하, 조용했, quiet; 용감하, 용감했, brave"
    )
]

#: Adjectives that describe things.
THING_ADJECTIVES = [
    Adjective(*row)
    for row in _split_rows(
        "비싸, 비쌌, expensive; 싸, 쌌, cheap; 작, 작았, small; 크, 컸, big; 무겁, 무거웠, heavy; 가볍, 가벼웠, light; "
        "예쁘, 예뻤, pretty; 깨끗하, 깨끗했, clean"
    )
]
