"""One's own account: log in and out, name and e-mail, password, sessions, and which organisation is shown."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth import login, views
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse, reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from catalog.models import Invitation, Organisation
from catalog.people import audit, sessions
from catalog.people import members as people
from catalog.viewing import viewer_of
from dashboard.project.middleware import FOCUS
from dashboard.web.requests import ViewerRequest, number_in, safe_next
from opatlas.errors import CallerError

MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"


class Login(views.LoginView):
    template_name = "people/login.html"
    redirect_authenticated_user = True


class Logout(views.LogoutView):
    next_page = "login"


class Password(views.PasswordChangeView):
    """Changing it logs out every other browser; this one goes on with a new session key."""

    template_name = "people/password.html"
    success_url = reverse_lazy("account")

    def form_valid(self, form: Any) -> HttpResponse:
        user: Any = self.request.user
        answers: list[HttpResponse] = []
        sessions.move_session(self.request, lambda: answers.append(super(Password, self).form_valid(form)))
        sessions.end_sessions(user.pk, but=self.request.session.session_key)
        audit.note(self.request, action="password.change", subject=user.get_username())
        messages.success(self.request, "Your password was changed; other browsers were logged out.")
        return answers[0]

    def form_invalid(self, form: Any) -> HttpResponse:
        answer = super().form_invalid(form)
        answer.status_code = 400
        return answer


class AccountForm(forms.ModelForm):  # type: ignore[type-arg]
    """What somebody says of oneself."""

    class Meta:
        model = User
        fields = ["first_name", "last_name", "email"]
        labels = {"email": "E-mail"}


class JoinForm(forms.Form):
    """A new account for somebody who was invited."""

    username = forms.CharField(max_length=150)
    password = forms.CharField(
        widget=forms.PasswordInput({"autocomplete": "new-password"}),
        strip=False,
        help_text="At least 10 characters, not a common password.",
    )
    again = forms.CharField(
        label="Password again", widget=forms.PasswordInput({"autocomplete": "new-password"}), strip=False
    )

    def __init__(self, data: Any, ending: str) -> None:
        super().__init__(data)
        self.fields["username"].help_text = f"Letters, digits and . + - _; it ends in {ending}."
        self.fields["username"].widget.attrs["placeholder"] = f"ada{ending}"

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("password") != given.get("again"):
            self.add_error("again", "The two passwords differ.")
        return given


@require_http_methods(["GET", "HEAD", "POST"])
def account(request: ViewerRequest) -> HttpResponse:
    user: Any = request.user
    form = AccountForm(request.POST or None, instance=User.objects.get(pk=user.pk))
    if request.method == "POST" and form.is_valid():
        form.save()
        audit.note(
            request, action="account.edit", subject=user.get_username(), detail={"changed": form.changed_data}
        )
        messages.success(request, "Saved.")
        return redirect("account")
    context = {
        "form": form,
        "sessions": user.sign_ins.order_by("-began_at")[:50],
        "current": request.session.session_key,
        "memberships": user.memberships.select_related("organisation").order_by("organisation__name"),
    }
    return render(request, "people/account.html", context, status=400 if request.method == "POST" else 200)


@require_POST
def end_sessions(request: ViewerRequest) -> HttpResponse:
    """Log every other browser out."""
    user: Any = request.user
    ended = sessions.end_sessions(user.pk, but=request.session.session_key)
    audit.note(request, action="account.end_sessions", subject=user.get_username(), detail={"ended": ended})
    messages.success(request, f"{ended} other session{'' if ended == 1 else 's'} ended.")
    return redirect("account")


@require_POST
def focus(request: ViewerRequest) -> HttpResponse:
    """Look at one organisation, or (for the host) at all; then return to the previous page."""
    viewer = viewer_of(request.user)
    chosen = number_in(request.POST.get("organisation", ""))
    if viewer.focused(chosen).focus == chosen and _exists(chosen):
        request.session[FOCUS] = chosen
    else:
        messages.error(request, "You belong to no such organisation.")
    audit.note(request, skip=True)
    return redirect(safe_next(request, reverse("overview")))


@login_not_required
@never_cache
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def invited(request: ViewerRequest, token: str) -> HttpResponse:
    """Take an invitation: with the account that one is logged in with, or with a new one."""
    audit.note(request, skip=True)
    try:
        invitation = people.read_invitation(token)
    except CallerError as error:
        status = getattr(error, "status", 404)
        return render(request, "people/invited.html", {"refused": str(error)}, status=status)
    form = JoinForm(request.POST or None, people.name_ending(invitation.organisation))
    if request.method == "POST":
        try:
            if request.user.is_authenticated:
                people.accept(invitation, request.user)
                return _joined(request, request.user, invitation)
            if form.is_valid():
                made = people.accept_with_account(
                    invitation, form.cleaned_data["username"], form.cleaned_data["password"]
                )
                login(request, made, MODEL_BACKEND)
                return _joined(request, made, invitation)
        except CallerError as error:
            where = getattr(error, "where", "")
            form.is_valid()
            form.add_error(where if where in form.fields else None, str(error))
    context = {"invitation": invitation, "form": form, "here": request.path, "login": reverse("login")}
    return render(request, "people/invited.html", context, status=400 if request.method == "POST" else 200)


def _joined(request: ViewerRequest, user: Any, invitation: Invitation) -> HttpResponse:
    audit.note(request, action="member.join", subject=user.get_username(),
               organisation=invitation.organisation, detail={"role": invitation.role})  # fmt: skip
    messages.success(request, f"Welcome to {invitation.organisation}.")
    return redirect("overview")


def _exists(number: int | None) -> bool:
    return number is None or Organisation.objects.filter(pk=number).exists()
