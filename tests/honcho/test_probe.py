"""What the chat models use of LangChain without a promise is there, in the installed release."""

from __future__ import annotations

from tests.langchain.test_probe import lacking

# What is used, a function with the parameters that it is passed; what happens without it.
USED = {
    "langchain_core.language_models:BaseChatModel._get_ls_params(self, stop)": (
        "records and traces call servers of OpenAI's wire openai, and a repr has no model"
    ),
    "langchain_core.language_models:BaseChatModel._convert_input(self, model_input)": (
        "STRUCTURED_OUTPUT_MODE=json_object fails each call"
    ),
    "langchain_openai.chat_models.base:BaseChatOpenAI": "no model of OpenAI's wire can be made",
    "langchain_google_genai:ChatGoogleGenerativeAI._prepare_request(self, messages)": (
        "Gemini is asked without a key where it is missing, and max_tokens of a call is unknown"
    ),
}


def test_the_installed_release_has_what_is_used() -> None:
    """Where this fails, the list says what no longer works and what a user sees."""
    assert lacking(USED) == []
