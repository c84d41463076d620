//! The union of the schemas of several files, and casts of arrays to it. No IO.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, ListArray, StructArray, cast::AsArray,
    new_null_array,
};
use arrow_schema::{DataType, Field, Fields};

use crate::error::{Error, ErrorKind, Result};

/// Adds the columns of another file to a union. Only casts that lose nothing common are allowed: integers widen, and
/// become floats.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] that names a column whose types have no union.
pub(super) fn join(known: &mut Vec<Field>, other: &[Field]) -> Result<()> {
    for field in other {
        match known.iter_mut().find(|one| one.name() == field.name()) {
            Some(one) => {
                let kind = united(field.name(), one.data_type(), field.data_type())?;
                *one = Field::new(field.name(), kind, true);
            }
            None => known.push(Field::new(field.name(), field.data_type().clone(), true)),
        }
    }
    Ok(())
}

fn united(name: &str, one: &DataType, other: &DataType) -> Result<DataType> {
    use DataType::{Float64, Int32, Int64, List, Struct};
    Ok(match (one, other) {
        (one, other) if one == other => one.clone(),
        (Int32, Int64) | (Int64, Int32) => Int64,
        (Int32 | Int64, Float64) | (Float64, Int32 | Int64) => Float64,
        (Struct(one), Struct(other)) => {
            let owned = |fields: &Fields| -> Vec<Field> {
                fields.iter().map(|field| field.as_ref().clone()).collect()
            };
            let mut fields = owned(one);
            let named = |err: Error| {
                let message = format!("column `{name}`: {}", err.message());
                Error::new(err.kind(), message)
            };
            join(&mut fields, &owned(other)).map_err(named)?;
            Struct(fields.into())
        }
        (List(one), List(other)) => {
            let kind = united(name, one.data_type(), other.data_type())?;
            let nullable = one.is_nullable() || other.is_nullable();
            List(Arc::new(Field::new("element", kind, nullable)))
        }
        (one, other) => {
            let message = format!("column `{name}` is {one} in one file and {other} in another");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
    })
}

/// Casts a column to the type of the union; fields that it lacks are null.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the type is not a union made by [`join`].
pub(super) fn fit(array: &ArrayRef, kind: &DataType) -> Result<ArrayRef> {
    if array.data_type() == kind {
        return Ok(Arc::clone(array));
    }
    let misfit = || {
        let message = format!("a column of {}, expected {kind}", array.data_type());
        Error::new(ErrorKind::InvalidInput, message)
    };
    let whole = || -> Option<Int64Array> {
        if let Some(numbers) = array.as_any().downcast_ref::<Int32Array>() {
            return Some(numbers.iter().map(|number| number.map(i64::from)).collect());
        }
        array.as_any().downcast_ref::<Int64Array>().cloned()
    };
    match kind {
        DataType::Int64 => Ok(Arc::new(whole().ok_or_else(misfit)?)),
        DataType::Float64 => {
            let whole = whole().ok_or_else(misfit)?;
            #[expect(clippy::cast_precision_loss, reason = "the union has floats")]
            let floats = whole
                .iter()
                .map(|number| number.map(|number| number as f64));
            Ok(Arc::new(Float64Array::from_iter(floats)))
        }
        DataType::Struct(fields) => {
            let rows = array.as_struct_opt().ok_or_else(misfit)?;
            let columns = fields
                .iter()
                .map(|field| match rows.column_by_name(field.name()) {
                    Some(column) => fit(column, field.data_type()),
                    None => Ok(new_null_array(field.data_type(), rows.len())),
                });
            let columns = columns.collect::<Result<Vec<_>>>()?;
            StructArray::try_new(fields.clone(), columns, rows.nulls().cloned())
                .map(|rows| Arc::new(rows) as ArrayRef)
                .map_err(|err| misfit().with_source(err))
        }
        DataType::List(element) => {
            let lists: &ListArray = array.as_list_opt().ok_or_else(misfit)?;
            let values = fit(lists.values(), element.data_type())?;
            let (ends, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            ListArray::try_new(Arc::clone(element), ends, values, nulls)
                .map(|lists| Arc::new(lists) as ArrayRef)
                .map_err(|err| misfit().with_source(err))
        }
        _ => Err(misfit()),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, StringArray};

    use super::*;
    use crate::index::schema::field;

    #[test]
    fn types_widen_and_missing_parts_are_null() {
        let inner = |name: &str, kind| DataType::Struct(vec![field(name, kind)].into());
        let mut known = vec![
            field("n", DataType::Int32),
            field("s", inner("a", DataType::Utf8)),
        ];
        let other = [
            field("n", DataType::Float64),
            field("s", inner("b", DataType::Int64)),
            field("new", DataType::Boolean),
        ];
        join(&mut known, &other).unwrap();
        let kinds: Vec<_> = known.iter().map(Field::data_type).collect();
        let (DataType::Float64, DataType::Struct(parts)) = (kinds[0], kinds[1]) else {
            panic!("{kinds:?}");
        };
        assert_eq!((parts.len(), kinds.len()), (2, 3));

        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let wide = fit(&numbers, &DataType::Float64).unwrap();
        assert_eq!(
            (wide.null_count(), wide.data_type()),
            (1, &DataType::Float64)
        );
        let rows: ArrayRef = Arc::new(StructArray::new(
            vec![field("a", DataType::Utf8)].into(),
            vec![Arc::new(StringArray::from(vec!["x", "y"]))],
            None,
        ));
        let rows = fit(&rows, kinds[1]).unwrap();
        assert_eq!(
            rows.as_struct().column_by_name("b").unwrap().null_count(),
            2
        );
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let deep = |kind| field("s", DataType::Struct(vec![field("a", kind)].into()));
        let mut known = vec![deep(DataType::Utf8)];
        let err = join(&mut known, &[deep(DataType::Int64)]).unwrap_err();
        assert_eq!(
            err.message(),
            "column `s`: column `a` is Utf8 in one file and Int64 in another"
        );
    }
}
