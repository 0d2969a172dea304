"""A forgotten password: a link by mail, that works once and for some hours, and the page that it leads to."""

from __future__ import annotations

from threading import Thread
from typing import Any

from django.conf import settings
from django.contrib.auth import forms, views
from django.http import HttpRequest, HttpResponse
from django.urls import reverse_lazy

from catalog.people import audit, sessions
from dashboard.pages.people.invitations import sends_mail
from opatlas.conf import conf


class ForgottenForm(forms.PasswordResetForm):
    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        """In the background: the time of an answer must not reveal whether the address is known."""
        Thread(target=super().send_mail, args=args, kwargs=kwargs).start()


class Forgotten(views.PasswordResetView):
    """Asks for an address. The answer is the same whether an account has it or not."""

    template_name = "people/forgotten.html"
    email_template_name = "people/forgotten_mail.txt"
    subject_template_name = "people/forgotten_subject.txt"
    form_class = ForgottenForm
    success_url = reverse_lazy("forgotten", query={"sent": 1})

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if sends_mail():
            return super().post(request, *args, **kwargs)
        return self.render_to_response(self.get_context_data(), status=409)

    def form_valid(self, form: Any) -> HttpResponse:
        # Links begin with the service's own address, never with what a request says of its host.
        self.extra_email_context = {"service": conf().service_url}
        audit.note(self.request, action="password.forgotten", subject=form.cleaned_data["email"])
        return super().form_valid(form)

    def form_invalid(self, form: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=400)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        hours = settings.PASSWORD_RESET_TIMEOUT // 3600
        return super().get_context_data(**kwargs, sends_mail=sends_mail(), hours=hours)


class Renew(views.PasswordResetConfirmView):
    """Takes the new password; every browser that knew the old one is logged out."""

    template_name = "people/renew.html"
    success_url = reverse_lazy("login", query={"renewed": 1})

    def form_valid(self, form: Any) -> HttpResponse:
        answer = super().form_valid(form)
        sessions.end_sessions(form.user.pk)
        audit.note(self.request, action="password.renew", subject=form.user.get_username())
        return answer

    def form_invalid(self, form: Any) -> HttpResponse:
        return self.render_to_response(self.get_context_data(form=form), status=400)

    def render_to_response(self, context: Any, **kwargs: Any) -> HttpResponse:
        if not self.validlink:
            kwargs["status"] = 404
        return super().render_to_response(context, **kwargs)
