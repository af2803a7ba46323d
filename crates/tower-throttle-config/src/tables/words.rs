//! Words: texts of a fixed set, some with an argument, such as `header:x-api-key`.

/// Declares an enum of words. `Header(String = "NAME") = "header:"` takes any name behind the word,
/// and `"N"` a whole number from 1 to 999,999,999. `for` names a type with the same variants.
macro_rules! words {
    ($(#[$meta:meta])* enum $name:ident for $root:ty { $($body:tt)+ }) => {
        words! { $(#[$meta])* enum $name { $($body)+ } }
        words! { @from $name, $root, $($body)+ }
    };
    (@from $name:ident, $root:ty, $(#[doc = $about:literal] $variant:ident = $word:literal,)+) => {
        impl From<$name> for $root {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => Self::$variant,)+
                }
            }
        }
    };
    ($(#[$meta:meta])* enum $name:ident {
        $(#[doc = $about:literal] $variant:ident $(($type:ty = $argument:literal))? = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(serde::Deserialize)]
        #[serde(try_from = "String")]
        pub(crate) enum $name {
            $(#[doc = $about] $variant $(($type))?,)+
        }

        impl TryFrom<String> for $name {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                $(words!(@take text, $variant, $word $(, $argument)?);)+
                Err("an unknown word")
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "anyOf": [$(words!(@schema $about, $word $(, $argument)?)),+]
                })
            }
        }
    };
    (@take $text:ident, $variant:ident, $word:literal) => {
        if $text == $word {
            return Ok(Self::$variant);
        }
    };
    (@take $text:ident, $variant:ident, $word:literal, $argument:literal) => {
        if let Some(argument) = $text.strip_prefix($word) {
            return argument.parse().map(Self::$variant).map_err(|_| "an unknown argument");
        }
    };
    (@schema $about:literal, $word:literal) => {
        serde_json::json!({ "type": "string", "const": $word, "description": $about.trim() })
    };
    (@schema $about:literal, $word:literal, $argument:literal) => {
        serde_json::json!({
            "type": "string",
            "x-word": concat!($word, $argument),
            "pattern": match $argument {
                "N" => concat!("^", $word, "[1-9][0-9]{0,8}$"),
                _ => concat!("^", $word, ".+$"),
            },
            "description": $about.trim(),
        })
    };
}
pub(super) use words;
