//! Goes through a file: its syntax tree, and the tokens in it that only macros understand.

use proc_macro2::{Delimiter, LineColumn, Span, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Meta, Token, UseTree};

use super::{Member, Method, Path, Source, Type};

/// What a file has, without what is under `#[cfg(test)]`.
pub(super) fn visit(file: &syn::File) -> Source {
    let mut visitor = Visitor::default();
    visitor.visit_file(file);
    visitor.found
}

#[derive(Default)]
struct Visitor {
    found: Source,
    in_static: bool,
    /// The names inside the struct or enum that is visited.
    inside: Option<Vec<(usize, String)>>,
}

/// Whether something is compiled for tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |meta: &Meta| meta.path().is_ident("test");
    let metas = attributes
        .iter()
        .filter(|a| a.path().is_ident("cfg"))
        .filter_map(|a| a.parse_args::<Meta>().ok());
    metas.into_iter().any(|meta| match &meta {
        Meta::List(all) if all.path.is_ident("all") => all
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|each| each.iter().any(is_test)),
        meta => is_test(meta),
    })
}

fn derives_default(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("derive") || list.path.is_ident("cfg_attr") => {
            super::first(list.tokens.clone(), "Default").is_some()
        }
        _ => false,
    })
}

fn item_attributes(item: &syn::Item) -> &[Attribute] {
    use syn::Item;
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::ForeignMod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::TraitAlias(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

impl<'ast> Visit<'ast> for Visitor {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_for_tests(item_attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[Attribute] = match item {
            syn::ImplItem::Const(i) => &i.attrs,
            syn::ImplItem::Fn(i) => &i.attrs,
            syn::ImplItem::Type(i) => &i.attrs,
            syn::ImplItem::Macro(i) => &i.attrs,
            _ => &[],
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_trait_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if !is_for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if !is_for_tests(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        // Documentation is a comment.
        if !attribute.path().is_ident("doc") {
            visit::visit_attribute(self, attribute);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for attribute in &item.attrs {
            self.visit_attribute(attribute);
        }
        self.visit_visibility(&item.vis);
        self.use_tree(&item.tree, &mut Vec::new(), None);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        let before = std::mem::replace(&mut self.in_static, true);
        visit::visit_item_static(self, item);
        self.in_static = before;
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.named_type(&item.ident, &item.vis, &item.attrs, |visitor| {
            visit::visit_item_struct(visitor, item);
        });
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.named_type(&item.ident, &item.vis, &item.attrs, |visitor| {
            visit::visit_item_enum(visitor, item);
        });
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = match &*item.self_ty {
            syn::Type::Path(path) if item.trait_.is_none() => path.path.segments.last(),
            _ => None,
        };
        for function in &item.items {
            if let syn::ImplItem::Fn(function) = function
                && !is_for_tests(&function.attrs)
            {
                self.found.methods.push(Method {
                    name: function.sig.ident.unraw().to_string(),
                    of: of.map(|segment| segment.ident.unraw().to_string()),
                });
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        for function in &item.items {
            if let syn::TraitItem::Fn(function) = function {
                let name = function.sig.ident.unraw().to_string();
                self.found.methods.push(Method { name, of: None });
            }
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(inside) = &mut self.inside {
            let names = path.segments.iter().map(|s| &s.ident);
            inside.extend(names.map(|n| (n.span().start().line, n.unraw().to_string())));
        }
        if let Some(first) = path.segments.first()
            && path.segments.len() > 1
        {
            let names = path.segments.iter().map(|s| s.ident.unraw().to_string());
            self.path(first.ident.span().start(), names.collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        if let syn::Member::Named(name) = &field.member {
            self.member(name, false);
        }
        visit::visit_expr_field(self, field);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.member(&call.method, true);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_lit(&mut self, literal: &'ast syn::Lit) {
        self.literal(literal);
    }

    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        self.tokens(tokens.clone());
    }
}

impl Visitor {
    fn path(&mut self, at: LineColumn, names: Vec<String>) {
        self.found.paths.push(Path {
            line: at.line,
            column: at.column,
            names,
            in_static: self.in_static,
        });
    }

    fn member(&mut self, name: &syn::Ident, is_called: bool) {
        self.found.members.push(Member {
            line: name.span().start().line,
            name: name.unraw().to_string(),
            is_called,
        });
    }

    fn literal(&mut self, literal: &syn::Lit) {
        let text = match literal {
            syn::Lit::Str(text) => text.value(),
            syn::Lit::ByteStr(bytes) => String::from_utf8_lossy(&bytes.value()).into_owned(),
            syn::Lit::CStr(text) => text.value().to_string_lossy().into_owned(),
            _ => return,
        };
        self.found.texts.push((literal.span().start().line, text));
    }

    /// A struct or enum; `fields` visits it.
    fn named_type(
        &mut self,
        name: &syn::Ident,
        visibility: &syn::Visibility,
        attributes: &[Attribute],
        fields: impl FnOnce(&mut Self),
    ) {
        let around = self.inside.replace(Vec::new());
        fields(self);
        let inside = std::mem::replace(&mut self.inside, around).unwrap_or_default();
        self.found.types.push(Type {
            line: name.span().start().line,
            name: name.unraw().to_string(),
            is_public: matches!(visibility, syn::Visibility::Public(_)),
            derives_default: derives_default(attributes),
            inside,
        });
    }

    /// Collects the paths of a `use` after those `before`, which began at `start`.
    fn use_tree(&mut self, tree: &UseTree, before: &mut Vec<String>, start: Option<Span>) {
        let (name, more) = match tree {
            UseTree::Path(path) => (&path.ident, Some(&*path.tree)),
            UseTree::Name(name) => (&name.ident, None),
            UseTree::Rename(rename) => (&rename.ident, None),
            UseTree::Glob(glob) => {
                let start = start.unwrap_or(glob.star_token.spans[0]);
                return self.used(before, "*".to_owned(), start);
            }
            UseTree::Group(group) => {
                return group
                    .items
                    .iter()
                    .for_each(|tree| self.use_tree(tree, before, None));
            }
        };
        let start = start.unwrap_or(name.span());
        let name = name.unraw().to_string();
        if let Some(more) = more {
            before.push(name);
            self.use_tree(more, before, Some(start));
            before.pop();
        } else {
            self.used(before, name, start);
        }
    }

    fn used(&mut self, before: &[String], name: String, start: Span) {
        let names: Vec<String> = before.iter().cloned().chain([name]).collect();
        if names.len() > 1 {
            self.path(start.start(), names);
        }
    }

    /// Looks among tokens for what the syntax tree would show.
    fn tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let in_static = self.in_static;
        let mut at = 0;
        while let Some(tree) = trees.get(at) {
            let rest = &trees[at + 1..];
            at += 1;
            match tree {
                TokenTree::Ident(name) if name == "static" => self.in_static = true,
                TokenTree::Ident(_) => at += self.token_path(&trees[at - 1..], &mut Vec::new()) - 1,
                TokenTree::Literal(literal) => self.literal(&syn::Lit::new(literal.clone())),
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Punct(mark) => match (mark.as_char(), rest) {
                    (';', _) => self.in_static = in_static,
                    // Lifetimes, and ranges; documentation is a comment.
                    ('\'', _) => at += 1,
                    ('.', [TokenTree::Punct(dot), ..]) if dot.as_char() == '.' => at += 1,
                    ('#', [TokenTree::Group(attribute), ..]) if is_documentation(attribute) => {
                        at += 1;
                    }
                    ('.', [TokenTree::Ident(name), after @ ..]) if name != "await" => {
                        self.member(name, is_call(after));
                        at += 1;
                    }
                    _ => {}
                },
            }
        }
        self.in_static = in_static;
    }

    /// Collects the path that begins with the first of these, or, before braces, the paths; says how many tokens they
    /// are.
    fn token_path(&mut self, trees: &[TokenTree], before: &mut Vec<String>) -> usize {
        let (depth, start) = (before.len(), trees.first().map(|t| t.span().start()));
        let mut at = 0;
        loop {
            match trees.get(at) {
                Some(TokenTree::Ident(name)) => before.push(name.unraw().to_string()),
                Some(TokenTree::Punct(star)) if star.as_char() == '*' && !before.is_empty() => {
                    before.push("*".to_owned());
                }
                Some(TokenTree::Group(group))
                    if group.delimiter() == Delimiter::Brace && before.len() > depth =>
                {
                    self.token_group(group.stream(), before);
                    before.truncate(depth);
                    return at + 1;
                }
                _ => break,
            }
            at += 1;
            if is_double_colon(&trees[at..]) {
                at += 2;
            } else {
                break;
            }
        }
        if let Some(start) = start
            && before.len() > 1
        {
            self.path(start, before.clone());
        }
        before.truncate(depth);
        at.max(1)
    }

    /// Collects the paths in braces at the end of a path.
    fn token_group(&mut self, tokens: TokenStream, before: &mut Vec<String>) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        let is_comma = |tree: &TokenTree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ',');
        for entry in trees.split(is_comma).filter(|entry| !entry.is_empty()) {
            self.token_path(entry, before);
        }
    }
}

fn is_double_colon(trees: &[TokenTree]) -> bool {
    let is_colon = |tree: &TokenTree| matches!(tree, TokenTree::Punct(p) if p.as_char() == ':');
    matches!(trees, [first, second, ..] if is_colon(first) && is_colon(second))
}

fn is_documentation(attribute: &proc_macro2::Group) -> bool {
    let first = attribute.stream().into_iter().next();
    attribute.delimiter() == Delimiter::Bracket
        && matches!(first, Some(TokenTree::Ident(name)) if name == "doc")
}

/// Whether a member is called that is before these.
fn is_call(after: &[TokenTree]) -> bool {
    match after.first() {
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Parenthesis,
        _ => is_double_colon(after), // the types of a generic method
    }
}
