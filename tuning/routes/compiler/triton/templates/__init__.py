"""Every template there is. Adding one is a line here."""

from tuning.routes.compiler.triton.launch import Template
from tuning.routes.compiler.triton.templates.attention import Attention
from tuning.routes.compiler.triton.templates.chain import Chain
from tuning.routes.compiler.triton.templates.product import Product
from tuning.routes.compiler.triton.templates.rows import Norm, Reduction, Softmax

TEMPLATES: tuple[Template, ...] = (Product(), Attention(), Softmax(), Norm(), Reduction(), Chain())
