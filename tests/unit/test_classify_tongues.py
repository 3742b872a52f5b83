"""What is written in other tongues than English: the same rules over each tongue's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from honcho_fallback._classify import classify
from honcho_fallback._classify._tables import read
from honcho_fallback._classify._texts import GROUPS, VOCABULARY, Vocabulary
from honcho_fallback._values.failure import FailureKind as Kind


class RelayError(Exception):
    """An error of a relay, with the status that it answered."""

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.body = {"error": {"message": message}}


# What providers and relays answer under a status that says nothing of it.
SAID: dict[str, list[tuple[Kind, str]]] = {
    "zh": [
        (Kind.QUOTA, "计费账户已被冻结"),
        (Kind.QUOTA, "账户余额不足\uff0c请充值"),
        (Kind.QUOTA, "该令牌额度已用尽"),
        (Kind.MODEL_UNAVAILABLE, "模型不存在"),
        (Kind.MODEL_UNAVAILABLE, "当前分组下对于该模型无可用渠道"),
        (Kind.AUTHENTICATION, "无效的令牌"),
        (Kind.CONTEXT_OVERFLOW, "输入长度超过模型最大上下文长度"),
        (Kind.CONTENT_POLICY, "输入内容包含敏感信息"),
        (Kind.RATE_LIMIT, "请求频率过高"),
        (Kind.OVERLOADED, "当前分组上游负载已饱和\uff0c请稍后再试"),
        (Kind.INVALID_REQUEST, "请求参数有误"),
    ],
    "ja": [
        (Kind.QUOTA, "クレジット残高が不足しています"),
        (Kind.QUOTA, "今月の利用枠を使い切りました"),
        (Kind.MODEL_UNAVAILABLE, "指定されたモデルは存在しません"),
        (Kind.MODEL_UNAVAILABLE, "モデル「nimbus」が見つかりません"),
        (Kind.AUTHENTICATION, "APIキーが無効です"),
        (Kind.CONTEXT_OVERFLOW, "トークン数が上限を超えています"),
        (Kind.CONTEXT_OVERFLOW, "入力がコンテキストの上限を超えました"),
        (Kind.RATE_LIMIT, "リクエスト数の上限に達しました。しばらくしてから再試行してください"),
        (Kind.RATE_LIMIT, "リクエストが多すぎます"),
        (Kind.OVERLOADED, "サーバーが混雑しています"),
        (Kind.CONTENT_POLICY, "不適切な内容が含まれています"),
        (Kind.TIMEOUT, "タイムアウトしました"),
        (Kind.INVALID_REQUEST, "パラメータが不正です"),
    ],
    "ko": [
        (Kind.QUOTA, "크레딧이 부족합니다"),
        (Kind.MODEL_UNAVAILABLE, "모델 이름이 틀렸습니다"),
        (Kind.MODEL_UNAVAILABLE, "존재하지 않는 모델입니다"),
        (Kind.MODEL_UNAVAILABLE, "모델을 찾을 수 없습니다"),
        (Kind.AUTHENTICATION, "API 키가 유효하지 않습니다"),
        (Kind.CONTEXT_OVERFLOW, "입력 토큰이 최대 길이를 초과했습니다"),
        (Kind.RATE_LIMIT, "요청이 너무 많습니다. 잠시 후 다시 시도해 주세요"),
        (Kind.RATE_LIMIT, "요청 한도를 초과했습니다"),
        (Kind.OVERLOADED, "서버가 과부하 상태입니다"),
        (Kind.CONTENT_POLICY, "부적절한 내용이 포함되어 있습니다"),
        (Kind.INVALID_REQUEST, "매개변수가 올바르지 않습니다"),
    ],
    "ru": [
        (Kind.QUOTA, "Недостаточно средств на балансе"),
        (Kind.QUOTA, "Пополните баланс, средства закончились"),
        (Kind.MODEL_UNAVAILABLE, "Модель не найдена"),
        (Kind.MODEL_UNAVAILABLE, "Модель «нимбус» не существует"),
        (Kind.AUTHENTICATION, "Неверный API-ключ"),
        (Kind.CONTEXT_OVERFLOW, "Превышен максимальный размер контекста"),
        (Kind.RATE_LIMIT, "Слишком много запросов, попробуйте позже"),
        (Kind.RATE_LIMIT, "Превышен лимит запросов"),
        (Kind.OVERLOADED, "Сервер перегружен"),
        (Kind.PERMISSION, "Доступ запрещён"),
        (Kind.TIMEOUT, "Истекло время ожидания"),
        (Kind.INVALID_REQUEST, "Некорректный параметр"),
    ],
    "de": [
        (Kind.QUOTA, "Guthaben aufgebraucht"),
        (Kind.QUOTA, "Ihr Kontingent ist erschöpft"),
        (Kind.MODEL_UNAVAILABLE, "Modell nicht gefunden"),
        (Kind.MODEL_UNAVAILABLE, "Dieses Modell ist nicht verfügbar"),
        (Kind.AUTHENTICATION, "Ungültiger API-Schlüssel"),
        (Kind.CONTEXT_OVERFLOW, "Die Eingabe überschreitet das Kontextfenster"),
        (Kind.RATE_LIMIT, "Zu viele Anfragen"),
        (Kind.OVERLOADED, "Der Server ist derzeit überlastet"),
        (Kind.PERMISSION, "Zugriff verweigert"),
        (Kind.TIMEOUT, "Zeitüberschreitung bei der Anfrage"),
        (Kind.INVALID_REQUEST, "Ungültiger Parameter"),
    ],
    "es": [
        (Kind.QUOTA, "Créditos insuficientes"),
        (Kind.QUOTA, "Ha superado la cuota mensual"),
        (Kind.MODEL_UNAVAILABLE, "Modelo no encontrado"),
        (Kind.MODEL_UNAVAILABLE, "El modelo no existe"),
        (Kind.AUTHENTICATION, "Clave de API no válida"),
        (Kind.CONTEXT_OVERFLOW, "La entrada excede el límite de contexto"),
        (Kind.RATE_LIMIT, "Demasiadas solicitudes, inténtelo más tarde"),
        (Kind.OVERLOADED, "El servidor está sobrecargado"),
        (Kind.PERMISSION, "Acceso denegado"),
        (Kind.INVALID_REQUEST, "Parámetro inválido"),
    ],
    "pt": [
        (Kind.QUOTA, "Saldo insuficiente"),
        (Kind.QUOTA, "Seus créditos foram esgotados"),
        (Kind.MODEL_UNAVAILABLE, "Modelo não encontrado"),
        (Kind.MODEL_UNAVAILABLE, "O modelo não está disponível"),
        (Kind.AUTHENTICATION, "Chave de API inválida"),
        (Kind.CONTEXT_OVERFLOW, "A entrada ultrapassa o limite de contexto"),
        (Kind.RATE_LIMIT, "Muitas requisições, tente novamente"),
        (Kind.PERMISSION, "Acesso negado"),
        (Kind.INVALID_REQUEST, "Parâmetro inválido"),
    ],
    "fr": [
        (Kind.QUOTA, "Crédit insuffisant"),
        (Kind.QUOTA, "Votre quota est épuisé"),
        (Kind.MODEL_UNAVAILABLE, "Le modèle n'existe pas"),
        (Kind.MODEL_UNAVAILABLE, "Modèle introuvable"),
        (Kind.AUTHENTICATION, "Clé d'API invalide"),
        (Kind.CONTEXT_OVERFLOW, "L'entrée dépasse la limite du contexte"),
        (Kind.RATE_LIMIT, "Trop de requêtes"),
        (Kind.OVERLOADED, "Le serveur est surchargé"),
        (Kind.PERMISSION, "Accès refusé"),
        (Kind.INVALID_REQUEST, "Paramètre invalide"),
    ],
}
WORDS: dict[str, list[str]] = read("texts")["words"]
SENTENCES = [(tongue, *said) for tongue, rows in SAID.items() for said in rows]


def kind_of(message: str, status: int) -> Kind:
    return classify(RelayError(message, status)).kind


@pytest.mark.parametrize(("tongue", "kind", "sentence"), SENTENCES)
def test_a_sentence_is_read_in_its_tongue(tongue: str, kind: Kind, sentence: str) -> None:
    """A 400 means what its message says, also in capitals and in the middle of another text."""
    assert tongue in read("tongues")
    assert kind_of(sentence, 400) is kind
    assert kind_of(sentence.upper(), 400) is kind
    assert kind_of(f"upstream says: {sentence} (request id: ab12)", 400) is kind


@pytest.mark.parametrize(("tongue", "kind", "sentence"), SENTENCES)
def test_a_tongue_is_read_by_its_words(tongue: str, kind: Kind, sentence: str) -> None:
    """Without the words of the tongues a sentence says something else, or nothing."""
    english = Vocabulary({group: WORDS.get(group, ()) for group in GROUPS})
    assert english.sentences(sentence) != VOCABULARY.sentences(sentence), (tongue, kind)


# --- letters


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("crédito", "money"),
        ("CRÉDITO", "money"),
        ("credito", "money"),
        ("überlastet", "busy"),
        ("ueberlastet", None),
        ("счёт", "money"),
        ("СЧЕТА", "money"),
        ("расчёт", None),
        ("残高が", "money"),
        ("ご利用残高", "money"),
    ],
)
def test_letters_with_marks_are_read_as_those_without(text: str, group: str | None) -> None:
    """A word of an alphabet is read as a whole; one of a script without spaces, inside a run."""
    places = [1 << list(GROUPS).index(group)] if group else [0]
    assert VOCABULARY.sentences(text) == places


def test_a_phrase_may_stand_in_two_scripts() -> None:
    """A word in Latin letters and one inside the run after it are side by side."""
    key = 1 << list(GROUPS).index("key")
    assert VOCABULARY.sentences("このAPIキーは")[0] & key
    assert VOCABULARY.sentences("このAPI キーは")[0] & key
    assert not VOCABULARY.sentences("このキーは")[0] & key


@given(text=st.text(max_size=40))
def test_no_text_raises(text: str) -> None:
    """Whatever letters come, a text is cut into sentences."""
    groups: Any = VOCABULARY.sentences(text)
    assert len(groups) >= 1
