"""Log in, log out, change the password."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth import views
from django.http import HttpResponse
from django.urls import reverse_lazy


class Login(views.LoginView):
    template_name = "login.html"
    redirect_authenticated_user = True


class Logout(views.LogoutView):
    next_page = "login"


class Password(views.PasswordChangeView):
    template_name = "password.html"
    success_url = reverse_lazy("overview")

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(self.request, "Your password was changed.")
        return super().form_valid(form)
