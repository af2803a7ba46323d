//! Reads any format that has a crate for serde: YAML, JSON and others.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::tree::{Entry, MAX_DEPTH, Node, Value};

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Depth(0).deserialize(deserializer)
    }
}

/// Reads a value that is so deep inside of others.
#[derive(Clone, Copy)]
struct Depth(usize);

impl Depth {
    fn inner<E: Error>(self) -> Result<Self, E> {
        match self.0 < MAX_DEPTH {
            true => Ok(Self(self.0 + 1)),
            false => Err(E::custom(format_args!(
                "lists and tables are more than {MAX_DEPTH} levels deep; write flatter ones"
            ))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Depth {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

const fn node(value: Value) -> Node {
    Node { value, place: None }
}

impl<'de> Visitor<'de> for Depth {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of a configuration file")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(node(Value::Nothing))
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Node, D::Error> {
        self.deserialize(inner)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Node, E> {
        Ok(node(Value::Flag(flag)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Node, E> {
        self.visit_i128(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Node, E> {
        self.visit_i128(number.into())
    }

    fn visit_i128<E>(self, number: i128) -> Result<Node, E> {
        Ok(node(Value::Whole(number)))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Node, E> {
        let whole = i128::try_from(number).map(Value::Whole);
        Ok(node(whole.unwrap_or(Value::Fraction(f64::INFINITY))))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Node, E> {
        Ok(node(Value::Fraction(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(node(Value::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let inner = self.inner()?;
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element_seed(inner)? {
            nodes.push(node);
        }
        Ok(node(Value::List(nodes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Node, A::Error> {
        let inner = self.inner()?;
        let mut entries = Vec::new();
        while let Some(name) = table.next_key()? {
            let node = table.next_value_seed(inner)?;
            entries.push(Entry {
                name,
                place: None,
                node,
            });
        }
        Ok(node(Value::Table(entries)))
    }
}
